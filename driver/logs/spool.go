package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"
)

// spool is where one output waits on disk between its FIFO and the log. Its
// files outlive the keeper:
//
//	<base>.note    how far it has been moved: see note
//	<base>.<n>     the bytes that came, of generation n
//
// Bytes go from the FIFO to the end of the file in one system call, which a
// kill cannot part. They stay there until the lines they make are in the log;
// then a new generation begins with what is left over. So at any instant each
// byte is in the FIFO, or in the file behind the note's To, or the note says
// which record it is part of; and that record is in the log, or its beginning
// is, or it can be made again.
//
// It is used by one goroutine. Nothing is opened before the first byte comes.
type spool struct {
	base   string
	stream string
	log    *Log

	note  note     // the last one written
	notes *os.File // nil until it is opened
	file  *os.File
	size  int64
}

// Bounds of a spool.
const (
	spliceMost = 64 << 10  // is taken at once: what a pipe has by default
	generation = 256 << 10 // the next one begins when there is so much
	spoolMost  = 1 << 30   // no note tells of more
)

// open goes on where an earlier keeper has stopped.
func (s *spool) open() error {
	if s.file != nil {
		return nil
	}
	notes, err := os.OpenFile(s.base+".note", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	n := readNote(notes)
	file, size, err := s.openGeneration(n.Generation)
	if err == nil && size < n.To {
		// All of it was in the log, and its end had begun.
		n = note{Generation: n.Generation, To: size}
	}
	if err != nil {
		return errors.Join(err, notes.Close())
	}
	s.note, s.notes, s.file, s.size = n, notes, file, size
	return nil
}

// readNote gives a spool's note, that of a new one when there is none.
func readNote(f *os.File) note {
	var b [noteSize]byte
	if _, err := f.ReadAt(b[:], 0); err == nil {
		if n, ok := decodeNote(b[:]); ok {
			return n
		}
	}
	return note{Generation: 1}
}

func (s *spool) path(generation int) string { return s.base + "." + strconv.Itoa(generation) }

func (s *spool) openGeneration(n int) (*os.File, int64, error) {
	f, err := os.OpenFile(s.path(n), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, 0, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}

// resume moves what an earlier keeper has left.
func (s *spool) resume() {
	if _, err := os.Stat(s.base + ".note"); errors.Is(err, fs.ErrNotExist) {
		return // nothing ever came
	}
	if s.open() == nil { // else take tries again
		s.move(time.Now())
	}
}

// close gives the files back and leaves them where they are.
func (s *spool) close() {
	if s.file != nil {
		_, _ = s.file.Close(), s.notes.Close() // nothing is buffered in them
		s.file, s.notes = nil, nil
	}
}

// take moves once what is in a FIFO to the log. again: nothing is there yet.
// A disk that takes nothing must not stop the program whose output it is: what
// it does not take is counted as lost.
func (s *spool) take(fd int) (again bool, err error) {
	if err := s.open(); err != nil {
		return s.discard(fd)
	}
	n, err := intoFile(fd, s.file, s.size)
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return true, nil
	case err != nil:
		return s.discard(fd)
	case n == 0:
		return false, io.EOF
	}
	s.size += int64(n)
	s.move(time.Now())
	if s.size >= generation {
		s.renew()
	}
	return false, nil
}

// discard reads what cannot be kept.
func (s *spool) discard(fd int) (again bool, err error) {
	b := buffers.Get().(*ioBuffers)
	defer buffers.Put(b)
	for {
		switch n, err := syscall.Read(fd, b.in); {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return true, nil
		case err != nil:
			return false, err
		case n == 0:
			return false, io.EOF
		default:
			s.log.drop(int64(n))
			return false, nil
		}
	}
}

// move makes records of the lines that have come.
func (s *spool) move(at time.Time) {
	b := buffers.Get().(*ioBuffers)
	defer buffers.Put(b)
	limit := int(min(flushSize, s.log.limit()))
	for s.note.To < s.size {
		data, err := s.read(b.in, s.note.To)
		if err != nil {
			s.skip()
			return
		}
		records, used := cut(b.out[:0], data, at, s.stream, limit)
		if used == 0 {
			return
		}
		s.append(records, note{To: s.note.To + int64(used), At: at})
		b.out = records[:0]
	}
}

// skip gives up what cannot be read back.
func (s *spool) skip() {
	s.log.drop(s.size - s.note.To)
	s.note.To = s.size
}

// read reads the file from an offset on, as much as there is room for.
func (s *spool) read(b []byte, from int64) ([]byte, error) {
	b = b[:min(int64(len(b)), s.size-from)]
	_, err := s.file.ReadAt(b, from)
	return b, err
}

// append puts records into the log, having noted that it will.
func (s *spool) append(records []byte, next note) {
	next.Generation, next.From = s.note.Generation, s.note.To
	s.log.append(records, func(p place) error {
		next.Place = p
		return s.write(next)
	})
	s.note = next
}

func (s *spool) write(n note) error {
	b, err := n.encode()
	if err != nil {
		return err
	}
	_, err = s.notes.WriteAt(b, 0)
	return err
}

// renew begins a generation with what is left over of this one. It exists
// from its note on; when that cannot be written, this one goes on.
func (s *spool) renew() {
	rest := make([]byte, s.size-s.note.To)
	if _, err := s.file.ReadAt(rest, s.note.To); err != nil && len(rest) > 0 {
		return
	}
	next := note{Generation: s.note.Generation + 1}
	file, err := os.OpenFile(s.path(next.Generation), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return
	}
	if _, err = file.Write(rest); err == nil {
		err = s.write(next)
	}
	if err != nil {
		_, _ = file.Close(), os.Remove(file.Name())
		return
	}
	_, _ = s.file.Close(), os.Remove(s.file.Name()) // if it stays, its number is not used again
	s.note, s.file, s.size = next, file, int64(len(rest))
}

// finish moves what is there, a last line without its newline too, and removes
// the files.
func (s *spool) finish() error {
	if s.file == nil {
		if _, err := os.Stat(s.base + ".note"); errors.Is(err, fs.ErrNotExist) {
			return nil // nothing ever came
		}
		if err := s.open(); err != nil {
			return fmt.Errorf("open spool: %w", err)
		}
	}
	at := time.Now()
	s.move(at)
	if rest := make([]byte, s.size-s.note.To); len(rest) > 0 {
		if _, err := s.file.ReadAt(rest, s.note.To); err != nil {
			s.skip()
		} else {
			s.append(appendLine(nil, at, s.stream, true, rest), note{To: s.size, At: at})
		}
	}
	// The note goes last: without it a file that is still there would be new.
	file, notes := s.file.Name(), s.notes.Name()
	s.close()
	return errors.Join(os.Remove(file), os.Remove(notes))
}

// repair finishes the writing of records in which an earlier keeper was
// killed. It is called before anybody writes to the machine's log.
func (s *spool) repair() error {
	if err := s.open(); err != nil {
		return err
	}
	defer s.close()
	n := s.note
	if n.Place.File == 0 || n.From == n.To {
		return nil
	}
	data := make([]byte, n.To-n.From)
	if _, err := s.file.ReadAt(data, n.From); err != nil {
		return err
	}
	want := again(data, n.At, s.stream, n.Last)
	f, err := os.OpenFile(s.log.files.path(s.log.id, n.Place.File), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // rotated away since
	}
	if err != nil {
		return err
	}
	have := make([]byte, len(want))
	got, err := f.ReadAt(have, n.Place.Offset)
	if err == nil || errors.Is(err, io.EOF) {
		err = nil
		// What differs was written by others, after these were lost to a full disk.
		if info, statErr := f.Stat(); statErr == nil && info.Size() >= n.Place.Offset && bytes.HasPrefix(want, have[:got]) {
			_, err = f.WriteAt(want[got:], n.Place.Offset+int64(got))
		}
	}
	return errors.Join(err, f.Close())
}
