package devcluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// processes identifies the processes of a run, no matter which process started them.
type processes struct {
	marker string
	// namespaces has the inodes of the nodes' namespaces. They are valid only while a thread holds
	// the namespaces, because inode numbers are reused.
	namespaces map[uint64]bool
}

// processes returns the cluster's processes.
func (c *Cluster) processes() processes {
	p := processes{marker: c.marker, namespaces: map[uint64]bool{}}
	if c.loopback != nil {
		return p
	}
	for _, n := range c.nodes {
		if n.thread == nil {
			continue // it could not be started
		}
		if ns, err := n.thread.namespace(); err == nil {
			p.namespaces[ns.Inode] = true
		}
	}
	// This process is never in a node's namespace; but if it were, every process in its namespace
	// would be killed. So rule it out.
	var own unix.Stat_t
	if unix.Stat("/proc/self/ns/net", &own) == nil {
		delete(p.namespaces, own.Ino)
	}
	return p
}

// has reports whether pid is a process of the run.
func (p processes) has(pid int) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	var s unix.Stat_t
	if len(p.namespaces) > 0 && unix.Stat(dir+"/ns/net", &s) == nil && p.namespaces[s.Ino] {
		return true
	}
	environ, err := os.ReadFile(dir + "/environ")
	return err == nil && bytes.Contains(append([]byte{0}, environ...),
		[]byte("\x00TORCHELASTIC_RUN_ID="+p.marker+"\x00"))
}

// signal sends a signal to each process of the run that is not in asked, adds it to asked, and
// returns the number of processes. A process in the middle of execve has no variables for a moment,
// and may be missed.
func (p processes) signal(s syscall.Signal, asked map[int]bool) (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	n := 0
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !p.has(pid) {
			continue
		}
		// Get a handle (a pidfd) first, and then check again: the PID may have been reused.
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		if p.has(pid) && !zombie(pid) {
			n++
			if !asked[pid] {
				err = process.Signal(s)
			}
			asked[pid] = true
		}
		process.Release()
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			return n, fmt.Errorf("end process %d: %w", pid, err)
		}
	}
	return n, nil
}

// zombie reports whether a process has ended, but was not waited for yet.
func zombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	after := bytes.LastIndex(stat, []byte(") "))
	return after >= 0 && after+2 < len(stat) && stat[after+2] == 'Z'
}

// kill kills all processes until it finds none twice in a row: some may have been about to start
// others, or been missed.
func (p processes) kill() error {
	none := 0
	for range 400 {
		n, err := p.signal(unix.SIGKILL, map[int]bool{})
		if err != nil {
			return err
		}
		if n > 0 {
			none = 0
		} else if none++; none == 2 {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("processes of run %s are still alive 2 s after SIGKILL, probably blocked "+
		"in the kernel; see `ps -eo pid,stat,wchan,args`", p.marker)
}

func (c *Cluster) kill() error { return c.processes().kill() }
