package process

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// flushSize is how much formatted output is gathered for one write.
const flushSize = 32 << 10

// machineLog writes a machine's log files. The file with the highest number
// is written; when it is full the next one is begun and nothing is ever
// renamed, so that a reader who has read a file to its end only has to look
// whether there is a next. Nothing is opened before the first byte comes.
type machineLog struct {
	layout layout
	id     bourse.MachineID

	mu      sync.Mutex
	maximum int64 // bytes of one file
	keep    int   // files
	file    *os.File
	number  int
	size    int64
	more    chan struct{} // closed at the next write; nil when nobody waits
	dropped int64         // bytes that the disk did not take, to be told in the log
	gone    bool          // the machine was destroyed
}

func newMachineLog(l layout, id bourse.MachineID) *machineLog {
	maximum, keep := logDefaults(0, 0)
	return &machineLog{layout: l, id: id, maximum: maximum, keep: keep}
}

func (m *machineLog) configure(s settings) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.maximum, m.keep = logDefaults(s.LogBytes, s.LogFiles)
}

// limit gives how many bytes a file may have.
func (m *machineLog) limit() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.maximum
}

// append writes whole records. What cannot be written is dropped and told
// about as soon as the disk takes writes again: a full disk must not stop the
// program whose output it is.
func (m *machineLog) append(records []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return
	}
	if m.dropped > 0 {
		note := fmt.Sprintf("bourse: %d bytes of output were lost: the log could not be written", m.dropped)
		if m.writeLocked(appendLine(nil, time.Now(), "stderr", false, []byte(note))) == nil {
			m.dropped = 0
		}
	}
	if err := m.writeLocked(records); err != nil {
		m.dropped += int64(len(records))
		return
	}
	if m.more != nil {
		close(m.more)
		m.more = nil
	}
}

func (m *machineLog) writeLocked(b []byte) error {
	if m.file == nil {
		if err := m.openLocked(); err != nil {
			return err
		}
	}
	if m.size > 0 && m.size+int64(len(b)) > m.maximum {
		if err := m.rotateLocked(); err != nil {
			return err
		}
	}
	n, err := m.file.Write(b)
	if err != nil && n > 0 {
		// A record cut in two would be lost together with the one after it.
		err = errors.Join(err, m.file.Truncate(m.size))
		n = 0
	}
	m.size += int64(n)
	return err
}

// openLocked goes on with the newest file there is, or begins the first. A
// record that a killed supervisor left torn gets its newline, so that the next
// begins on a line of its own.
func (m *machineLog) openLocked() error {
	files, err := m.layout.logFiles(m.id)
	if err != nil {
		return err
	}
	m.number = 1
	if len(files) > 0 {
		m.number = files[len(files)-1]
	}
	if err := os.Mkdir(m.layout.logs(m.id), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := os.OpenFile(m.layout.logFile(m.id, m.number), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if m.size, err = f.Seek(0, io.SeekEnd); err != nil {
		return errors.Join(err, f.Close())
	}
	var last [1]byte
	if m.size > 0 {
		if _, err := f.ReadAt(last[:], m.size-1); err == nil && last[0] != '\n' {
			n, err := f.Write([]byte("\n"))
			m.size += int64(n)
			if err != nil {
				return errors.Join(err, f.Close())
			}
		}
	}
	m.file = f
	return nil
}

func (m *machineLog) rotateLocked() error {
	next, err := os.OpenFile(m.layout.logFile(m.id, m.number+1), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_ = m.file.Close() // nothing is buffered in it
	m.file, m.size = next, 0
	m.number++
	files, err := m.layout.logFiles(m.id)
	for i := 0; err == nil && i < len(files)-m.keep; i++ {
		if err := os.Remove(m.layout.logFile(m.id, files[i])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil // an old file too many is no reason to lose new lines; the next rotation tries again
		}
	}
	return nil
}

// close gives the file back once no task of the machine runs. The log may be
// written again.
func (m *machineLog) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closeLocked()
}

func (m *machineLog) closeLocked() {
	if m.file != nil {
		_ = m.file.Close()
		m.file = nil
	}
}

// destroy ends the log for good and lets its watchers know.
func (m *machineLog) destroy() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closeLocked()
	m.gone = true
	if m.more != nil {
		close(m.more)
		m.more = nil
	}
}

// state tells whether the machine is gone, and gives a channel that is closed
// when more has been written or it has gone.
func (m *machineLog) state() (gone bool, more <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.more == nil {
		m.more = make(chan struct{})
	}
	return m.gone, m.more
}
