# For gdb: the program counters of every thread's frames, without what no frame of the
# stack stands for.
import gdb

gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
for thread in gdb.selected_inferior().threads():
    thread.switch()
    print("TID %d:" % thread.ptid[1])
    frame = gdb.newest_frame()
    while frame is not None:
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            print("#0 0x%x" % frame.pc())
        frame = frame.older()
