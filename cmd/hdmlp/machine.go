package main

import (
	"fmt"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/host"
	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/store/pressure"
)

func availableMemory() (int64, error) {
	m, err := host.Memory()
	return m.Available, err
}

// memoryReading returns a function that measures for a pressure.Monitor. outstanding returns what
// jobs may still take, such as staging buffers that were not used yet: it is not free.
func memoryReading(outstanding func() int64) func() (pressure.Reading, error) {
	var gauge host.MemoryGauge
	return func() (pressure.Reading, error) {
		m, err := gauge.Measure()
		if err != nil {
			return pressure.Reading{}, err
		}
		r := pressure.Reading{
			At: time.Now(), Limit: m.Total, Free: m.Available - outstanding(),
			What: "the machine", Stalled: -1,
		}
		if m.Group != "" {
			r.Limit, r.What = m.Limit, "control group "+m.Group
		}
		if total, ok := gauge.Stalled(); ok {
			r.Stalled = total
		}
		return r, nil
	}
}

// ownGrowth is memory reserved for the daemon itself, in addition to what it uses when a job starts
// and what jobs may take.
const ownGrowth = 16 << 20

// memoryBound returns what bounds the available memory, as a suffix to the number.
func memoryBound() string {
	m, err := host.Memory()
	switch {
	case err != nil:
		return ""
	case m.Group == "":
		return fmt.Sprintf(" (of the machine's %s; another %s is reserved for the daemon itself)",
			human.Format(m.Total), human.Format(ownGrowth))
	}
	return fmt.Sprintf(" (control group %s is limited to %s, of which its processes, including "+
		"the daemon and the training processes, use %s; another %s is reserved for the "+
		"daemon itself)",
		m.Group, human.Format(m.Limit), human.Format(m.Used), human.Format(ownGrowth))
}

// disk returns how many bytes are free on the disk of dir, which need not exist, and how many it
// has in all.
func disk(dir string) (free, total int64, err error) {
	d, err := host.Disk(dir)
	return d.Free, d.Total, err
}
