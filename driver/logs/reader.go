package logs

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// reader reads a machine's log files, oldest first. Each call to read continues where the previous call stopped.
type reader struct {
	files  Files
	id     bourse.MachineID
	want   driver.LogQuery
	skip   int // number of records to skip
	number int // number of the current file; 0 before the first file
	file   *os.File
	offset int64 // position in file after the last complete record
}

// open returns a reader positioned according to want.
func (f Files) open(id bourse.MachineID, want driver.LogQuery) (*reader, error) {
	r := &reader{files: f, id: id, want: want}
	if want.After != "" {
		var err error
		r.number, r.offset, err = parsePosition(want.After)
		return r, err
	}
	if want.Tail == 0 {
		return r, nil
	}
	return r, r.seekTail(max(0, want.Tail))
}

func (r *reader) close() {
	if r.file != nil {
		_ = r.file.Close()
	}
}

// seekTail positions the reader before the last n records.
func (r *reader) seekTail(n int) error {
	files, err := r.files.numbers(r.id)
	if err != nil {
		return err
	}
	have := 0
	for _, number := range slices.Backward(files) {
		count, size, err := countLines(r.files.path(r.id, number))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // rotation removed this file, so the file counted before is the oldest
		case err != nil:
			return err
		}
		have += count
		r.number = number
		if have >= n {
			r.skip = have - n
			if n == 0 {
				r.skip, r.offset = 0, size
			}
			break
		}
	}
	return nil
}

// position returns the [driver.LogLine] position of a line. number is the number of the line's file, and end is the
// offset in the file at which the line ends.
func position(number int, end int64) string {
	b := strconv.AppendInt(make([]byte, 0, 24), int64(number), 10)
	return string(strconv.AppendInt(append(b, '.'), end, 10))
}

func parsePosition(s string) (number int, end int64, err error) {
	file, offset, ok := strings.Cut(s, ".")
	n, err1 := strconv.ParseUint(file, 10, 31)
	o, err2 := strconv.ParseUint(offset, 10, 63)
	if !ok || n == 0 || err1 != nil || err2 != nil {
		return 0, 0, driver.ErrPosition(s)
	}
	return int(n), int64(o), nil
}

// countLines returns the number of complete lines in a file, and the offset at which the last of them ends.
func countLines(path string) (lines int, end int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	b := make([]byte, 64<<10)
	var at int64
	for {
		n, err := f.Read(b)
		lines += bytes.Count(b[:n], []byte("\n"))
		if i := bytes.LastIndexByte(b[:n], '\n'); i >= 0 {
			end = at + int64(i) + 1
		}
		at += int64(n)
		if err == io.EOF {
			return lines, end, nil
		}
		if err != nil {
			return 0, 0, err
		}
	}
}

// read calls line with every complete record that has not been read yet.
func (r *reader) read(line func(driver.LogLine) error) error {
	for {
		if r.file == nil {
			ok, err := r.open()
			if err != nil || !ok {
				return err
			}
		}
		// List the files before reading the current file to its end. If the list contains a newer file, the current one
		// is complete, because the writer creates a file only after its last write to the previous file.
		files, err := r.files.numbers(r.id)
		if err != nil {
			return err
		}
		if err := r.readFile(line); err != nil {
			return err
		}
		if len(files) == 0 || files[len(files)-1] <= r.number {
			return nil
		}
		_ = r.file.Close()
		r.file, r.offset = nil, 0
		r.number++
	}
}

// open opens the next file to read, which is the oldest file whose number is at least r.number. It
// returns false if there is no such file.
func (r *reader) open() (bool, error) {
	for {
		files, err := r.files.numbers(r.id)
		if err != nil {
			return false, err
		}
		next := 0
		for _, n := range files {
			if n >= r.number {
				next = n
				break
			}
		}
		if next == 0 {
			return false, nil
		}
		f, err := os.Open(r.files.path(r.id, next))
		if errors.Is(err, fs.ErrNotExist) {
			continue // rotation has removed the file since it was listed
		}
		if err != nil {
			return false, err
		}
		if next != r.number {
			r.offset, r.skip, r.number = 0, 0, next
		} else if info, err := f.Stat(); err == nil && info.Size() < r.offset {
			r.offset = info.Size() // the end of the file was lost in a crash; the next line starts at the current end
		}
		r.file = f
		return true, nil
	}
}

func (r *reader) readFile(line func(driver.LogLine) error) error {
	if _, err := r.file.Seek(r.offset, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReaderSize(r.file, 64<<10)
	for {
		b, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			// Skip a record that does not fit into the buffer. A Log never writes such long records.
			r.offset += int64(len(b))
			continue
		}
		if err == io.EOF {
			return nil // if the last record is unterminated, it is still being written
		}
		if err != nil {
			return err
		}
		r.offset += int64(len(b))
		if r.skip > 0 {
			r.skip--
			continue
		}
		l, ok := parseLine(b[:len(b)-1])
		if !ok || l.At.Before(r.want.Since) && r.want.After == "" {
			continue
		}
		l.Position = position(r.number, r.offset)
		if err := line(l); err != nil {
			return err
		}
	}
}
