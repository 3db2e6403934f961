package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// fifoPriority is above every normal process and below the kernel's own threads.
const fifoPriority = 10

// raisePriority moves all threads of the process to the real-time class or, if that is refused, to
// the highest normal priority, and returns what it reached. Threads that the runtime creates later
// inherit it from the thread that creates them.
func raisePriority() (string, error) {
	refused := eachThread(func(tid int) error {
		return unix.SchedSetAttr(tid,
			&unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: fifoPriority}, 0)
	})
	if refused == nil {
		return fmt.Sprintf("SCHED_FIFO %d", fifoPriority), nil
	}
	const highest = -20
	if err := eachThread(func(tid int) error {
		return unix.Setpriority(unix.PRIO_PROCESS, tid, highest)
	}); err != nil {
		return "normal", errors.Join(refused, err)
	}
	return "nice -20", refused
}

// eachThread applies set to every thread, and repeats until all threads, which may start new ones
// meanwhile, are set.
func eachThread(set func(tid int) error) error {
	done := make(map[int]bool)
	for fresh := true; fresh; {
		fresh = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil || done[tid] {
				continue
			}
			if err := set(tid); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("thread %d: %w", tid, err)
			}
			done[tid], fresh = true, true
		}
	}
	return nil
}

// onParentEnd calls end when the process that started this one ends, even if it was killed. Its
// goroutine waits for that, or for the end of this process.
func onParentEnd(end func()) error {
	parent := os.Getppid()
	if parent == 0 { // outside this namespace: cannot be watched
		return nil
	}
	fd, err := unix.PidfdOpen(parent, 0)
	if errors.Is(err, unix.ESRCH) {
		end()
		return nil
	}
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	if os.Getppid() != parent { // it ended, and its ID was reused
		end()
	}
	go func() {
		defer unix.Close(fd)
		set := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			if n, err := unix.Poll(set, -1); n > 0 || (err != nil && !errors.Is(err, unix.EINTR)) {
				end()
				return
			}
		}
	}()
	return nil
}
