#!/bin/sh
# Find a Python with wheels for the pinned packages and run setup/environments.py, builds.py or where.py with it.
set -eu
# With CDPATH, cd prints a path, which the caller would read as part of the answer.
unset CDPATH PYTHONHOME PYTHONPATH
cd "$(dirname "$0")/.."

module=setup.environments
case "${1:-}" in
where) module=setup.where ;;
here) module=setup.builds && shift ;;
esac

supported='import sys; assert (3, 11) <= sys.version_info[:2] <= (3, 13); print(sys.executable)'
if [ -n "${PYTHON:-}" ]; then
    where="PYTHON=$PYTHON"
    set -- "$PYTHON" -- "$@"
else
    where=PATH
    set -- python3.11 python3.12 python3.13 python3 -- "$@"
fi

found=''
while [ "$1" != -- ]; do
    if python=$("$1" -c "$supported" 2>/dev/null); then
        while [ "$1" != -- ]; do shift; done
        shift
        exec "$python" -m "$module" "$@"
    fi
    version=$("$1" --version 2>/dev/null) && found="$found${found:+, }$1 is $version"
    shift
done

cat >&2 <<END
error: no supported Python
  where: $where
  expected: Python 3.11, 3.12 or 3.13
  found: ${found:-none}

hint: install one (Debian, Ubuntu: apt install python3.11 python3.11-venv; RHEL: dnf install python3.11), or set its path: make PYTHON=/path/to/python3.11 ...
END
exit 3
