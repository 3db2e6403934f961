package main

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/probe"
	"github.com/hdmlp/hdmlp/internal/size"
)

func availableMemory() (int64, error) {
	m, err := probe.Memory()
	return m.Available, err
}

// ownGrowth is what the daemon itself may come to use beside what it uses at a job's start, and
// what jobs are told they may take.
const ownGrowth = 16 << 20

// memoryBound says what bounds the memory that is available.
func memoryBound() string {
	m, err := probe.Memory()
	switch {
	case err != nil:
		return ""
	case m.Group == "":
		return fmt.Sprintf(" (of the machine's %s; %s more are left to the daemon itself)",
			size.Format(m.Total), size.Format(ownGrowth))
	}
	return fmt.Sprintf(" (control group %s is limited to %s, of which its processes, the daemon "+
		"and those that train among them, use %s; %s more are left to the daemon itself)",
		m.Group, size.Format(m.Limit), size.Format(m.Used), size.Format(ownGrowth))
}

// freeDisk is what is free on the disk that dir is on, or will be.
func freeDisk(dir string) (int64, error) {
	d, err := probe.Disk(dir)
	return d.Free, err
}
