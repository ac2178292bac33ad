package volume

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// clone makes dst share all blocks of src. Not every file system supports it; see cannotClone.
func clone(dst, src *os.File) error { return unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) }

// cannotClone reports whether err, returned by clone, means that the file system does not support
// shared blocks for these files.
func cannotClone(err error) bool {
	for _, e := range []error{unix.EOPNOTSUPP, unix.EXDEV, unix.EINVAL, unix.ENOTTY, unix.ENOSYS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// nextData returns the first range of data, at or after off, that is not a hole. It returns
// io.EOF if there is no such range. It changes the file's position.
func nextData(f *os.File, off int64) (from, to int64, err error) {
	from, err = f.Seek(off, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return 0, 0, io.EOF
	}
	if err == nil {
		to, err = f.Seek(from, unix.SEEK_HOLE)
	}
	return from, to, err
}

// punchHole deallocates a range of the file, which then reads as zeros. The file's size does not change.
func punchHole(f *os.File, off, bytes int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, bytes)
}

// writeBack starts writing the dirty pages in a range to the disk, so that a later sync takes
// less time.
func writeBack(f *os.File, off, bytes int64) {
	_ = unix.SyncFileRange(int(f.Fd()), off, bytes, unix.SYNC_FILE_RANGE_WRITE) // the result does not matter, because a later sync returns errors
}

// allocated returns the number of bytes that the file occupies on the disk.
func allocated(f *os.File) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	return st.Blocks * 512, nil
}
