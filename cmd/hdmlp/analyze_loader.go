package main

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
	"github.com/hdmlp/hdmlp/internal/study/analysis"
)

// configured adds what hdmlp's loader has by its configuration: threads and caches.
func configured(m *analysis.Measured, c *config.Config) error {
	m.Loader.Workers = c.TransformThreads
	if m.Loader.Workers == 0 {
		m.Loader.Workers = m.Cores
	}
	policy, err := policies.ByName(c.Policy)
	if err != nil {
		return err
	}
	if policy.About().Copies == plan.NoCopies {
		m.Notes = append(m.Notes, analysis.Note{About: "loader", Text: fmt.Sprintf("the policy %s "+
			"keeps nothing in memory or a cache directory: what more of them would bring is that of a "+
			"policy that does, such as %s", policy.Name(), policies.Default().Name())})
		return nil
	}
	for _, class := range c.StorageClasses {
		mb := float64(capacityOf(class)) / 1e6
		if class.Memory {
			m.Loader.CacheMB += mb
		} else {
			m.Loader.DirectoryMB += mb
		}
	}
	return nil
}

// capacityOf returns how many bytes a job would have of a class: without a size, what is free on
// its disk, less what is to stay free.
func capacityOf(c config.StorageClass) int64 {
	if c.Capacity() > 0 || c.Path() == "" {
		return c.Capacity()
	}
	free, total, err := disk(c.Path())
	if err != nil {
		return 0
	}
	reserve := c.Reserve()
	if kind, err := classKind(c.Kind); err == nil && reserve == 0 && kind.Reserve != nil {
		reserve = kind.Reserve(total)
	}
	return max(free-reserve, 0)
}
