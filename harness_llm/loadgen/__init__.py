"""LoadGen's process: SUT, replica client, query table, scheduler, health monitor, probe, log parser."""
