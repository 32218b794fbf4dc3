"""Official scripts of mlcommons/inference: accuracy scores and verdicts of compliance tests."""
