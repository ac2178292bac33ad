package main

import (
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse/driver/vm/session"
)

// A suspended machine consists of this process and a snapshot. This process keeps its connection to the guest, and with it the
// program's streams, so they continue when another qemu has restored the guest.

var (
	errRefused = errors.New("qemu does not accept it")
	errVersion = errors.New("it is from another version of qemu")
)

// snapshot is the state of a suspended machine.
type snapshot struct {
	file    *os.File // has no name, so it disappears with this process
	key     cipher.AEAD
	version string // version of the qemu that wrote it
}

// runControl asks the container's first process to suspend or resume the machine.
func runControl(action string) (int, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: session.ControlSocket})
	if err != nil {
		return failed, err
	}
	defer conn.Close()
	if err := session.Write(conn, action); err != nil {
		return failed, err
	}
	var r session.Report
	if err := session.Read(conn, session.MaxShort, &r); err != nil {
		return failed, err
	}
	switch {
	case r.Retry:
		return failed, errors.New(r.Error)
	case r.Error != "":
		return session.Refused, errors.New(r.Error)
	}
	return 0, nil
}

// serveControl executes the requests of "agent suspend" and "agent resume".
func (m *machine) serveControl(l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			var action string
			if err := session.Read(conn, session.MaxShort, &action); err != nil {
				return
			}
			_ = session.Write(conn, m.control(action)) // the agent may have been killed
		}()
	}
}

func (m *machine) control(action string) (r session.Report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var err error
	select {
	case <-m.dead:
		err = m.reason
	default:
		switch {
		case action == session.Suspend && m.snapshot == nil:
			err = m.suspend()
		case action == session.Resume && m.snapshot != nil:
			if err = m.resume(); err == nil {
				break
			}
			err = fmt.Errorf("restore the machine from its snapshot: %w", err)
			if errors.Is(err, errRefused) {
				err = fmt.Errorf("%w; its last output: %s", err, m.console.text())
			}
			if r.Retry = m.snapshot != nil; !r.Retry {
				m.end(err)
			}
		}
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// suspend replaces qemu with a snapshot. If that fails, the guest keeps running.
func (m *machine) suspend() error {
	f, err := createSnapshot(m.config.MaxSnapshot)
	if err != nil {
		return err
	}
	m.sync()
	s := &snapshot{file: f, key: newKey(), version: m.vmm.monitor.version}
	if err := m.vmm.save(f, s.key, m.config.MaxSnapshot); err != nil {
		return errors.Join(err, f.Close(), m.vmm.proceed())
	}
	m.vmm.kill()
	m.vmm, m.snapshot = nil, s
	return nil
}

// syncTimeout limits the time in which the guest writes its volumes' data before it is suspended.
const syncTimeout = 5 * time.Second

// sync lets the guest write its volumes' data. If it does not, the data remains in the snapshot, and is lost if the machine is not resumed.
func (m *machine) sync() {
	if m.config.Program.First == nil || len(m.config.Program.First.Boot.Volumes) == 0 {
		return
	}
	done := make(chan struct{})
	go func() { // ends when the guest answers, which may be after its resumption
		defer close(done)
		s, err := m.guest.OpenStream()
		if err != nil {
			return
		}
		defer s.Close()
		if session.Write(s, session.Open{Kind: session.Sync}) == nil {
			_, _ = io.Copy(io.Discard, s)
		}
	}()
	select {
	case <-done:
	case <-time.After(syncTimeout):
	}
}

// createSnapshot creates a file without a name, and reserves size bytes for it. It returns an error if the file system has no room.
func createSnapshot(size int64) (*os.File, error) {
	if err := checkRoom(size); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(session.Dir, "snapshot")
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.Name())
	if err == nil {
		err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
	}
	switch {
	case err == nil:
		err = checkRoom(0) // other machines may be suspended at the same time
	case errors.Is(err, unix.EOPNOTSUPP): // if the disk becomes full, the suspension fails
		err = nil
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkRoom returns an error unless size bytes can be written and enough of the file system remains free.
func checkRoom(size int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(session.Dir, &fs); err != nil {
		return err
	}
	const reserved = 16 // 1/reserved of the file system remains free
	if free := (int64(fs.Bavail) - int64(fs.Blocks)/reserved) * fs.Bsize; free < size {
		return fmt.Errorf("its snapshot needs up to %d MiB of disk space, and the host has %d MiB for it", size>>20, max(0, free)>>20)
	}
	return nil
}

// saveTimeout is the time limit for writing a snapshot.
const saveTimeout = 10 * time.Minute

// save stops the guest and writes its state to a file. Afterward, the file's pages are on disk instead of
// in memory. While the guest is stopped, qemu does not read from the guest's port, so bytes for the guest wait in the socket for the
// next qemu.
func (v *vmm) save(to *os.File, key cipher.AEAD, limit int64) error {
	if err := v.monitor.run("stop", nil, nil); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	const name, unlimited = "snapshot", 1 << 40
	err = errors.Join(
		r.SetReadDeadline(time.Now().Add(saveTimeout)),
		v.monitor.run("migrate-set-parameters", map[string]any{"max-bandwidth": unlimited}, nil),
		v.monitor.run("getfd", map[string]any{"fdname": name}, nil, w),
		w.Close(), // qemu has its own
	)
	if err == nil {
		err = v.monitor.run("migrate", map[string]any{"uri": "fd:" + name}, nil)
	}
	if err == nil {
		err = seal(to, r, key, limit)
	}
	if err != nil {
		return err
	}
	status := ""
	err = v.monitor.await("query-migrate", func(s string) bool { status = s; return s == "completed" || s == "failed" })
	if err == nil && status == "failed" {
		err = errors.New("qemu has not written the machine's state")
	}
	if err == nil {
		err = freeRest(to)
	}
	if err == nil {
		err = to.Sync()
	}
	_ = unix.Fadvise(int(to.Fd()), 0, 0, unix.FADV_DONTNEED) // only a hint
	return err
}

// freeRest frees the space that is reserved for a file beyond its end.
func freeRest(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return f.Truncate(info.Size())
}

// proceed lets a guest continue that could not be saved.
func (v *vmm) proceed() error {
	err := v.monitor.await("query-migrate", func(s string) bool { return s == "" || s == "completed" || s == "failed" })
	if err == nil {
		err = v.monitor.run("cont", nil, nil)
	}
	if err != nil {
		_ = v.cmd.Process.Kill() // which ends the machine; an error means that it has ended
	}
	return err
}

// resume restores the guest from its snapshot. If that fails, m.snapshot is nil unless a later attempt may succeed.
func (m *machine) resume() error {
	v, err := m.load(m.snapshot)
	if err != nil {
		if errors.Is(err, errDamaged) || errors.Is(err, errRefused) || errors.Is(err, errVersion) {
			m.discard()
		}
		return err
	}
	m.discard() // the guest is about to change its disks
	order := session.Order{Resumed: &session.Resumed{Time: time.Now(), Entropy: make([]byte, 64)}}
	_, _ = rand.Read(order.Resumed.Entropy) // never fails
	select {
	case m.orders <- order:
	case <-time.After(time.Second): // the guest does not read its orders, and keeps its clock
	}
	if err := v.monitor.run("cont", nil, nil); err != nil {
		v.kill()
		return err
	}
	m.vmm = v
	v.expected.Store(false)
	select {
	case <-v.ended:
		return fmt.Errorf("qemu has ended; its last output: %s", m.console.text())
	default:
		return nil
	}
}

func (m *machine) discard() {
	_ = m.snapshot.file.Close() // it was only read
	m.snapshot = nil
}

// load starts a qemu that reads the guest's state from a snapshot.
func (m *machine) load(s *snapshot) (*vmm, error) {
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	v, err := m.start(r)
	_ = r.Close() // qemu has its own
	if err != nil {
		return nil, err
	}
	if err := v.load(w, s); err != nil {
		v.kill() // it may still wait for the rest of the snapshot
		return nil, err
	}
	return v, nil
}

// load passes a snapshot to a qemu that reads it from a pipe.
func (v *vmm) load(pipe *os.File, s *snapshot) error {
	if v.monitor.version != s.version {
		return fmt.Errorf("%w: %s, and not %s", errVersion, s.version, v.monitor.version)
	}
	if err := unseal(pipe, s.file, s.key); errors.Is(err, unix.EPIPE) {
		return errRefused
	} else if err != nil {
		return err
	}
	if err := pipe.Close(); err != nil {
		return err
	}
	if err := v.monitor.await("query-status", func(status string) bool { return status != "inmigrate" }); err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return nil
}
