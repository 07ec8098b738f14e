"""The numbers of events, as the scheduler interface has them (`EventRecord` in si.proto): what an event is about, how
that changed, and which part of it. Written `event_codes.APP`, so that the short names say what they number.

Not here: which events there are (`partition_worker/engine/events.py`), the record that carries them
(`common/messages/rm_messages.py`). Numbers of the interface that no event has are left out.
"""

from typing import Final

# What it is about -----------------------------------------------------------------------------------------------------

REQUEST: Final = 1
APP: Final = 2
NODE: Final = 3
QUEUE: Final = 4
USERGROUP: Final = 5

# How it changed -------------------------------------------------------------------------------------------------------

NONE: Final = 0
SET: Final = 1
ADD: Final = 2
REMOVE: Final = 3

# Which part of it -----------------------------------------------------------------------------------------------------

DETAILS_NONE: Final = 0

REQUEST_CANCEL: Final = 100
REQUEST_TIMEOUT: Final = 102

APP_ALLOC: Final = 200
APP_REQUEST: Final = 201
APP_REJECT: Final = 202
APP_NEW: Final = 203
APP_ACCEPTED: Final = 204
APP_STARTING: Final = 205
APP_RUNNING: Final = 206
APP_COMPLETING: Final = 207
APP_COMPLETED: Final = 208
APP_FAILING: Final = 209
APP_FAILED: Final = 210
APP_RESUMING: Final = 211
APP_EXPIRED: Final = 212
APP_CANNOTRUN_QUEUE: Final = 213
APP_RUNNABLE_QUEUE: Final = 214
APP_CANNOTRUN_QUOTA: Final = 215
APP_RUNNABLE_QUOTA: Final = 216

NODE_DECOMISSION: Final = 300  # the interface spells it so
NODE_SCHEDULABLE: Final = 302
NODE_ALLOC: Final = 303
NODE_CAPACITY: Final = 304
NODE_RESERVATION: Final = 306

QUEUE_DYNAMIC: Final = 401
QUEUE_TYPE: Final = 402
QUEUE_MAX: Final = 403
QUEUE_GUARANTEED: Final = 404
QUEUE_APP: Final = 405
QUEUE_PREEMPTION: Final = 407

ALLOC_CANCEL: Final = 500
ALLOC_PREEMPT: Final = 501
ALLOC_TIMEOUT: Final = 502
ALLOC_REPLACED: Final = 503
ALLOC_NODEREMOVED: Final = 504

UG_USER_LIMIT: Final = 600
UG_GROUP_LIMIT: Final = 601
UG_APP_LINK: Final = 602
UG_USER_RESOURCE: Final = 603
UG_GROUP_RESOURCE: Final = 604
