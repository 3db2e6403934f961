package main

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// disk is a directory that is mounted for writing as well, as a slow disk: reads and writes share
// its bandwidth. It has no faults and no latency.
type disk struct {
	fs.LoopbackNode
	src *source
}

var (
	_ fs.NodeOpener          = (*disk)(nil)
	_ fs.NodeCreater         = (*disk)(nil)
	_ fs.NodeWrapChilder     = (*disk)(nil)
	_ fs.FileReader          = (*slowFile)(nil)
	_ fs.FileWriter          = (*slowFile)(nil)
	_ fs.FileAllocater       = (*slowFile)(nil)
	_ fs.FileFsyncer         = (*slowFile)(nil)
	_ fs.FileGetattrer       = (*slowFile)(nil)
	_ fs.FileSetattrer       = (*slowFile)(nil)
	_ fs.FileReleaser        = (*slowFile)(nil)
	_ fs.FilePassthroughFder = (*slowFile)(nil)
)

// mountDisk mounts the source's directory on dir for reading and writing.
func mountDisk(src *source, dir string) (*mounted, error) {
	st, err := src.stat()
	if err != nil {
		return nil, err
	}
	root := &fs.LoopbackRoot{Path: src.root, Dev: uint64(st.Dev)}
	top := &disk{LoopbackNode: fs.LoopbackNode{RootData: root}, src: src}
	root.RootNode = top
	return mountTree(src, dir, top, fs.Options{})
}

// WrapChild makes every file and directory below a part of the disk.
func (d *disk) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	loopback, ok := ops.(*fs.LoopbackNode)
	if !ok {
		return ops
	}
	return &disk{LoopbackNode: fs.LoopbackNode{RootData: loopback.RootData}, src: d.src}
}

// Open opens a file for direct I/O.
func (d *disk) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f, _, errno := d.LoopbackNode.Open(ctx, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	d.src.counts.opens.Add(1)
	return &slowFile{f, d.src}, fuse.FOPEN_DIRECT_IO, 0
}

// Create creates a file, and opens it for direct I/O.
func (d *disk) Create(ctx context.Context, name string, flags, mode uint32,
	out *fuse.EntryOut,
) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	inode, f, _, errno := d.LoopbackNode.Create(ctx, name, flags, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	return inode, &slowFile{f, d.src}, fuse.FOPEN_DIRECT_IO, 0
}

// slowFile is an open file of a disk.
type slowFile struct {
	file fs.FileHandle
	src  *source
}

// wait waits until n bytes have been transferred.
func (f *slowFile) wait(n int) {
	f.src.sleeper.until(f.src.bucket.take(n, f.src.settings.Load().bandwidth))
}

// Read reads at once, and answers when the bytes would have been transferred.
func (f *slowFile) Read(ctx context.Context, dest []byte,
	off int64,
) (fuse.ReadResult, syscall.Errno) {
	result, errno := f.file.(fs.FileReader).Read(ctx, dest, off)
	if errno != 0 {
		return nil, errno
	}
	n := result.Size()
	f.wait(n)
	f.src.counts.reads.Add(1)
	f.src.counts.bytes.Add(int64(n))
	return result, 0
}

// Write writes at once, and answers when the bytes would have been transferred.
func (f *slowFile) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	n, errno := f.file.(fs.FileWriter).Write(ctx, data, off)
	f.wait(int(n))
	return n, errno
}

// Allocate reserves space.
func (f *slowFile) Allocate(ctx context.Context, off, size uint64, mode uint32) syscall.Errno {
	return f.file.(fs.FileAllocater).Allocate(ctx, off, size, mode)
}

// Fsync writes what is cached to the directory's disk.
func (f *slowFile) Fsync(ctx context.Context, flags uint32) syscall.Errno {
	return f.file.(fs.FileFsyncer).Fsync(ctx, flags)
}

// Getattr returns the file's attributes.
func (f *slowFile) Getattr(ctx context.Context, out *fuse.AttrOut) syscall.Errno {
	return f.file.(fs.FileGetattrer).Getattr(ctx, out)
}

// Setattr changes the file's attributes.
func (f *slowFile) Setattr(ctx context.Context, in *fuse.SetAttrIn,
	out *fuse.AttrOut,
) syscall.Errno {
	return f.file.(fs.FileSetattrer).Setattr(ctx, in, out)
}

// Release closes the file.
func (f *slowFile) Release(ctx context.Context) syscall.Errno {
	return f.file.(fs.FileReleaser).Release(ctx)
}

// PassthroughFd refuses to let the kernel read the file past the throttle.
func (f *slowFile) PassthroughFd() (int, bool) { return 0, false }
