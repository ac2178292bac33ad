package test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestViewDiskFull fills the disk that contains a running broker's copy of the view. Orders
// must still be filled and lists answered. Once there is space again, all copies must
// become identical.
func TestViewDiskFull(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	small := newEnclave(t, unix.CLONE_NEWNS)
	if err := small.mountSmall(disk, 4<<20); err != nil {
		t.Skipf("this process cannot create a small disk: %v", err)
	}
	c := newFiles(t, "bourse-disk", func(join string) *server {
		s := newServer(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0", "--data", disk, "--join", join)
		s.Launch = small.launch
		return s
	})
	filler := filepath.Join(disk, "filler")
	c.endures("the disk is full", func() {
		if err := small.do(func() error { return fill(filler) }); err != nil {
			t.Fatal(err)
		}
		eventually(t, waitTimeout, "a member reports the full disk", func() error {
			c.orders()
			return c.unwritable()
		})
		c.orders()
		if err := small.do(func() error { return os.Remove(filler) }); err != nil {
			t.Fatal(err)
		}
	})
	checkProcesses(t, c.healthy, c.mark)
}

// fill writes a file until there is no space left.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for _, size := range []int{64 << 10, 1} {
		for err == nil {
			_, err = f.Write(bytes.Repeat([]byte{1}, size))
		}
		if !errors.Is(err, unix.ENOSPC) {
			return errors.Join(err, f.Close())
		}
		err = nil
	}
	return f.Close()
}

// unwritable returns an error unless a member reports that its copy cannot be written.
func (c *files) unwritable() error {
	h, err := c.healthy.ViewHealth(c.t.Context())
	if err != nil {
		return err
	}
	for i := range h.Members {
		if m := &h.Members[i]; m.Error != "" {
			c.t.Logf("%s is %s, %d behind: %s", m.ID, m.State, m.Behind, m.Error)
			return nil
		}
	}
	return fmt.Errorf("none of %d members reports that its copy cannot be written", len(h.Members))
}
