"""The state of processes in the text of metrics."""

from yunishard.cli.commands.process_metrics import ProcessStatus, parse_processes

TEXT = r"""# HELP yunishard_process_up Whether the process answers.
# TYPE yunishard_process_up gauge
yunishard_process_up{partition="rm_p",process="partition_worker"} 0
yunishard_process_up{process="broker"} 1
yunishard_process_start_time_seconds{process="broker"} 1.7e+09
yunishard_process_resident_memory_bytes{process="broker"} 4.1e+07
yunishard_process_cpu_seconds_total{process="broker"} 1.5
yunishard_process_loop_lag_max_seconds{process="broker"} 0.012
yunishard_process_messages_total{direction="in",process="broker"} 5
yunishard_asks_pending{partition="rm_p"} 3
"""


def test_each_process_is_read_with_its_partition() -> None:
    assert parse_processes(TEXT) == [
        ProcessStatus("broker", "", True, 1.7e9, 4.1e7, 1.5, 0.012),
        ProcessStatus("partition_worker", "rm_p"),
    ]
    assert parse_processes("nothing") == []
