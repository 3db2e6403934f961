package staging

import (
	"fmt"
	"os"
)

// A group of jobs shares one buffer, its window (package share/feed): each of its processes maps it
// privately, and gets its slots under numbers of its own.

// windowBit is set, with extraSlot, in the numbers of a window's slots. A process thus returns them
// by frames.
const windowBit = 1 << 30

// NewWindow is New for a window. Its slots have whole pages, so that a process can drop its own
// copies of them before it returns a slot.
func NewWindow(size, most int64) (*Buffer, error) {
	b, err := New(size, most)
	if err == nil {
		b.unit = int64(os.Getpagesize())
	}
	return b, err
}

// WindowSlot returns the nth number, modulo 2^30, by which a process refers to a slot of a window.
// It differs from the numbers of the slots of its own buffer.
func WindowSlot(n uint32) uint32 { return extraSlot | windowBit | n&(windowBit-1) }

// InWindow reports whether a number is one of WindowSlot.
func InWindow(slot uint32) bool {
	return slot&(extraSlot|windowBit) == extraSlot|windowBit
}

// ReadOnly returns a descriptor of the same memory that is open for reading only. A process can map
// it privately and write to its own copies of pages, but cannot write to what others map.
func ReadOnly(memory *os.File) (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", memory.Fd()))
}
