package process

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hdmlp/hdmlp/internal/node/request"
)

// List returns a descriptor with a list of numbers, as a process passes it.
func List(numbers []int) (*os.File, error) {
	fd, err := unix.MemfdCreate("list", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make a list of samples: %w", err)
	}
	data := make([]byte, 0, 4*len(numbers))
	for _, n := range numbers {
		data = binary.LittleEndian.AppendUint32(data, uint32(n))
	}
	f := os.NewFile(uintptr(fd), "list")
	_, err = f.Write(data)
	return f, err
}

// first adds the process's part of its first epoch to a request, as a list that it returns. The
// only rank of a job also gives the sizes of the batches.
func first(o *Options) (*os.File, error) {
	given := *o.Request.Stream.Given
	numbers := o.Part(given.First)
	given.Entries = len(numbers)
	if o.Request.WorldSize == 1 {
		var sizes []int
		for from := 0; from < len(numbers); from += given.Batch {
			sizes = append(sizes, min(given.Batch, len(numbers)-from))
		}
		given.Batches, numbers = len(sizes), append(sizes, numbers...)
	}
	list, err := List(numbers)
	o.Request.Stream.Given, o.Request.Stream.List = &given, list
	return list, err
}

// give gives the process's part of an epoch, unless it gave it before.
func (p *Process) give(epoch int) error {
	if p.o.Part == nil || epoch <= p.given || epoch >= p.o.Request.Stream.Epochs {
		return nil
	}
	numbers := p.o.Part(epoch)
	list, err := List(numbers)
	if err != nil {
		return err
	}
	defer list.Close() //nolint:errcheck // it is memory
	p.given = epoch
	return p.rank.Give(request.Give{Epoch: epoch, Entries: len(numbers)}, list)
}
