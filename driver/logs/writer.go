package logs

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

// flushSize is the number of bytes of formatted records that are combined into one write.
const flushSize = 32 << 10

// Log writes a machine's log files. It writes to the file with the highest number and creates the
// next one when that file is full. Files are never renamed, so a reader that has read a file to its end
// only has to check whether there is a next file. A Log opens a file only when there is something to write.
// Use Files.Log to create a Log. A Log is safe for concurrent use.
type Log struct {
	files Files
	id    bourse.MachineID

	mu      sync.Mutex
	maximum int64 // maximum size of a file in bytes
	keep    int   // maximum number of files
	file    *os.File
	number  int
	size    int64
	written chan struct{} // closed at the next write; nil if nobody waits for one
	dropped int64         // number of bytes that could not be written, to be reported in the log
	gone    bool          // whether the machine was destroyed
}

// Log returns the writer of a machine's log. A log must have only one writer at a time.
func (f Files) Log(id bourse.MachineID) *Log {
	l := &Log{files: f, id: id}
	l.Configure(0, 0)
	return l
}

// Configure sets the maximum size of a file in bytes and the maximum number of files; 0 means the
// default.
func (m *Log) Configure(bytes int64, files int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.maximum, m.keep = Defaults(bytes, files)
}

// Defaults returns its arguments, replacing values that are not positive with the defaults: 10
// MiB and 3 files.
func Defaults(bytes int64, files int) (int64, int) {
	if bytes <= 0 {
		bytes = 10 << 20
	}
	if files <= 0 {
		files = 3
	}
	return bytes, files
}

// limit returns the maximum size of a file in bytes.
func (m *Log) limit() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.maximum
}

// append writes complete records. append drops records that cannot be written, because a full disk must not block the
// program. Once the disk accepts writes again, append logs how many bytes were dropped.
func (m *Log) append(records []byte) {
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
	m.notifyLocked()
}

func (m *Log) notifyLocked() {
	if m.written != nil {
		close(m.written)
		m.written = nil
	}
}

func (m *Log) writeLocked(b []byte) error {
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
		// Remove the partial record, because it would also make the next record unreadable.
		err = errors.Join(err, m.file.Truncate(m.size))
		n = 0
	}
	m.size += int64(n)
	return err
}

// openLocked opens the newest file, or creates the first one. If the file ends with an incomplete record
// because a process was killed, openLocked adds a newline, so that the next record starts on a new line.
func (m *Log) openLocked() error {
	files, err := m.files.numbers(m.id)
	if err != nil {
		return err
	}
	m.number = 1
	if len(files) > 0 {
		m.number = files[len(files)-1]
	}
	if err := os.Mkdir(m.files.dir(m.id), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := os.OpenFile(m.files.path(m.id, m.number), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
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

func (m *Log) rotateLocked() error {
	next, err := os.OpenFile(m.files.path(m.id, m.number+1), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_ = m.file.Close() // errors do not matter, because the data has been written
	m.file, m.size = next, 0
	m.number++
	files, err := m.files.numbers(m.id)
	for i := 0; err == nil && i < len(files)-m.keep; i++ {
		if err := os.Remove(m.files.path(m.id, files[i])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil // an additional old file is harmless, and the next rotation tries again
		}
	}
	return nil
}

// Close closes the file, if it is open. The next write opens it again. The keeper calls Close when it stops using the
// Log.
func (m *Log) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closeLocked()
}

func (m *Log) closeLocked() {
	if m.file != nil {
		_ = m.file.Close()
		m.file = nil
	}
}

// Destroy removes the log's files and makes all Watch calls return. Later writes are dropped.
func (m *Log) Destroy() error {
	m.end()
	return m.files.Remove(m.id)
}

func (m *Log) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closeLocked()
	m.gone = true
	m.notifyLocked()
}

// state reports whether the log was destroyed. It also returns a channel that is closed at the
// next write or when the log is destroyed.
func (m *Log) state() (gone bool, more <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.written == nil {
		m.written = make(chan struct{})
	}
	return m.gone, m.written
}
