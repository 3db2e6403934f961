package staging

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// memory is a mapped memfd.
type memory struct {
	file *os.File
	data []byte
}

func newMemory(name string, size int64) (memory, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return memory{}, notMade("create shared memory "+name, size, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := unix.Ftruncate(fd, size); err != nil {
		f.Close()
		return memory{},
			limited(fmt.Sprintf("size shared memory %s to %d bytes", name, size), size, err)
	}
	// Neither side can shrink the memory under the other: no bus errors.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
		unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		f.Close()
		return memory{}, fmt.Errorf("seal shared memory %s: %w", name, err)
	}
	data, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		f.Close()
		return memory{},
			limited(fmt.Sprintf("map shared memory %s of %d bytes", name, size), size, err)
	}
	return memory{f, data}, nil
}

func (m *memory) close() {
	_ = unix.Munmap(m.data)
	m.file.Close()
}
