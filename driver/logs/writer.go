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

// flushSize is how much formatted output is gathered for one write.
const flushSize = 32 << 10

// Log writes a machine's log files. The file with the highest number is
// written; when it is full the next one is begun and nothing is ever renamed,
// so that a reader who has read a file to its end only has to look whether
// there is a next. Nothing is opened before the first byte comes. Make it with
// Files.Log. It is safe for concurrent use.
type Log struct {
	files Files
	id    bourse.MachineID

	mu      sync.Mutex
	maximum int64 // bytes of one file
	keep    int   // files
	file    *os.File
	number  int
	size    int64
	more    chan struct{} // closed at the next write; nil when no one waits
	dropped int64         // bytes that the disk did not take, to be told in the log
	gone    bool          // the machine was destroyed
}

// Log makes the writer of a machine's log. There must be one at a time.
func (f Files) Log(id bourse.MachineID) *Log {
	l := &Log{files: f, id: id}
	l.Configure(0, 0)
	return l
}

// Configure sets how large a file may become and how many are kept; 0 stands
// for the default.
func (m *Log) Configure(bytes int64, files int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.maximum, m.keep = Defaults(bytes, files)
}

// Defaults returns the size and number of files for a configuration: 10 MiB and
// 3 for what is not set.
func Defaults(bytes int64, files int) (int64, int) {
	if bytes <= 0 {
		bytes = 10 << 20
	}
	if files <= 0 {
		files = 3
	}
	return bytes, files
}

// limit returns how many bytes a file may have.
func (m *Log) limit() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.maximum
}

// append writes whole records. What cannot be written is dropped and told
// about as soon as the disk takes writes again: a full disk must not stop the
// program whose output it is.
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
	m.tellLocked()
}

func (m *Log) tellLocked() {
	if m.more != nil {
		close(m.more)
		m.more = nil
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
	_ = m.file.Close() // nothing is buffered in it
	m.file, m.size = next, 0
	m.number++
	files, err := m.files.numbers(m.id)
	for i := 0; err == nil && i < len(files)-m.keep; i++ {
		if err := os.Remove(m.files.path(m.id, files[i])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil // an old file too many is no reason to lose new lines; the next rotation tries again
		}
	}
	return nil
}

// Close returns the file back once no task of the machine runs. The log may be
// written again.
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

// Destroy ends the log for good, lets its watchers know and removes its files.
func (m *Log) Destroy() error {
	m.end()
	return m.files.Remove(m.id)
}

func (m *Log) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closeLocked()
	m.gone = true
	m.tellLocked()
}

// state reports whether the machine is gone, and returns a channel that is closed
// when more has been written or it has gone.
func (m *Log) state() (gone bool, more <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.more == nil {
		m.more = make(chan struct{})
	}
	return m.gone, m.more
}
