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

// processes are those of a run, whoever started them.
type processes struct {
	marker string
	// the nodes', by inode; only while somebody holds them: numbers are given out again
	namespaces map[uint64]bool
}

// processes are the cluster's.
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
	// Nothing makes a node's namespace this process's own; what it would lead to is too bad to rely
	// on that.
	var own unix.Stat_t
	if unix.Stat("/proc/self/ns/net", &own) == nil {
		delete(p.namespaces, own.Ino)
	}
	return p
}

// has tells whether pid is a process of the run.
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

// signal sends a signal to every process of the run that is not in asked, puts it
// there, and tells how many processes there are. One that is about to become another
// program (execve) has no variables for a moment, and may be overlooked.
func (p processes) signal(s syscall.Signal, asked map[int]bool) (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("look for processes: %w", err)
	}
	n := 0
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !p.has(pid) {
			continue
		}
		// A handle first (a pidfd), then the question again: the number may have gone to another.
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

// zombie tells whether a process has ended, and its parent has not noticed.
func zombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	after := bytes.LastIndex(stat, []byte(") "))
	return after >= 0 && after+2 < len(stat) && stat[after+2] == 'Z'
}

// kill ends all processes, again until there are none, twice: some may have been about to
// start others, or been overlooked.
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
	return fmt.Errorf("processes of run %s are still there 2 s after SIGKILL: they wait for a "+
		"device, see `ps -eo pid,stat,wchan,args`", p.marker)
}

func (c *Cluster) kill() error { return c.processes().kill() }
