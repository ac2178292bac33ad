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

// A suspended machine consists of this process and a snapshot. This process keeps its connection to the guest open,
// together with the program's streams. The streams therefore continue to work once another qemu has restored the guest.

var (
	errRefused = errors.New("qemu rejected the snapshot")
	errVersion = errors.New("the snapshot was written by another version of qemu")
)

// snapshot is the state of a suspended machine.
type snapshot struct {
	file    *os.File // has no name, so it disappears with this process
	key     cipher.AEAD
	version string // version of the qemu that wrote it
}

// runControl asks the container's first process to suspend or resume the machine.
func runControl(action string) (int, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: session.ControlSocket}) // closed by this process's exit; see awaitReplies
	if err != nil {
		return failed, err
	}
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
		m.requests.Go(func() {
			defer conn.Close()
			var action string
			if err := session.Read(conn, session.MaxShort, &action); err != nil {
				return
			}
			_ = session.Write(conn, m.control(action)) // the agent may have been killed
			_, _ = io.Copy(io.Discard, conn)           // until the agent has exited
		})
	}
}

// replyTimeout limits how long requests in progress can delay the exit of the container's first process.
const replyTimeout = time.Second

// awaitReplies waits until the agents that have sent requests have received their replies and exited, for up to
// replyTimeout. It must be called before this process exits. When this process exits, the kernel kills all other
// processes in the container, and an agent whose request ended the machine could be killed before it has reported the
// reason.
func (m *machine) awaitReplies() {
	done := make(chan struct{})
	go func() {
		m.requests.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(replyTimeout):
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
				err = fmt.Errorf("%w; qemu's last output: %s", err, m.console.text())
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

// suspend writes a snapshot of the guest and kills qemu. If the snapshot cannot be written, the guest keeps
// running.
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

// syncTimeout is how long suspend waits for the guest to flush its volumes' data.
const syncTimeout = 5 * time.Second

// sync asks the guest to flush its volumes' data to their disks, and waits up to syncTimeout for the guest to finish.
// Data that was not flushed exists only in the snapshot, and is lost if the machine is never resumed.
func (m *machine) sync() {
	if m.config.Program.First == nil || len(m.config.Program.First.Boot.Volumes) == 0 {
		return
	}
	done := make(chan struct{})
	go func() { // exits when the guest answers, perhaps only after it has been resumed
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

// createSnapshot creates an unnamed file and reserves size bytes for it. It returns an error if there is not enough
// disk space.
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
	case errors.Is(err, unix.EOPNOTSUPP): // without a reservation, save fails if the disk becomes full
		err = nil
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkRoom returns an error unless a sixteenth of the file system stays free after size bytes have been written.
func checkRoom(size int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(session.Dir, &fs); err != nil {
		return err
	}
	const reserved = 16
	if free := (int64(fs.Bavail) - int64(fs.Blocks)/reserved) * fs.Bsize; free < size {
		return fmt.Errorf("the machine's snapshot needs up to %d MiB of disk space, but only %d MiB are available", size>>20, max(0, free)>>20)
	}
	return nil
}

// saveTimeout is the time limit for writing a snapshot.
const saveTimeout = 10 * time.Minute

// save stops the guest and writes its state to a file. It then evicts the file from the page cache, so that the
// snapshot does not occupy memory. While the guest is stopped, qemu does not read from the socket to the guest, so
// data for the guest stays there until the next qemu reads it.
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
		w.Close(), // qemu has its own descriptor
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
		err = errors.New("qemu failed to write the machine's state")
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

// freeRest frees disk space that was reserved for the file but not used.
func freeRest(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return f.Truncate(info.Size())
}

// proceed resumes the guest after save has failed. If it cannot resume the guest, it kills qemu, which ends the
// machine.
func (v *vmm) proceed() error {
	err := v.monitor.await("query-migrate", func(s string) bool { return s == "" || s == "completed" || s == "failed" })
	if err == nil {
		err = v.monitor.run("cont", nil, nil)
	}
	if err != nil {
		_ = v.cmd.Process.Kill() // an error means that qemu has already exited
	}
	return err
}

// resume restores the guest from its snapshot. After an error, m.snapshot is nil unless the caller may try again.
func (m *machine) resume() error {
	v, err := m.load(m.snapshot)
	if err != nil {
		if errors.Is(err, errDamaged) || errors.Is(err, errRefused) || errors.Is(err, errVersion) {
			m.discard()
		}
		return err
	}
	m.discard() // the snapshot must not be used again once the guest has changed its disks
	order := session.Order{Resumed: &session.Resumed{Time: time.Now(), Entropy: make([]byte, 64)}}
	_, _ = rand.Read(order.Resumed.Entropy) // never fails
	select {
	case m.orders <- order:
	case <-time.After(time.Second): // the guest is not reading its orders; resume it with the old clock
	}
	if err := v.monitor.run("cont", nil, nil); err != nil {
		v.kill()
		return err
	}
	m.vmm = v
	v.expected.Store(false)
	select {
	case <-v.ended:
		return fmt.Errorf("qemu exited; its last output: %s", m.console.text())
	default:
		return nil
	}
}

func (m *machine) discard() {
	_ = m.snapshot.file.Close() // it was only read
	m.snapshot = nil
}

// load starts qemu and makes it read the guest's state from a snapshot. The guest is not running yet when load returns.
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
	_ = r.Close() // qemu has its own descriptor
	if err != nil {
		return nil, err
	}
	if err := v.load(w, s); err != nil {
		v.kill() // it may still be waiting for the rest of the snapshot
		return nil, err
	}
	return v, nil
}

// load decrypts a snapshot and writes it to the pipe from which qemu reads the guest's state.
func (v *vmm) load(pipe *os.File, s *snapshot) error {
	if v.monitor.version != s.version {
		return fmt.Errorf("%w: got %s, want %s", errVersion, s.version, v.monitor.version)
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
