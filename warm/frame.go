package warm

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strconv"

	"github.com/bourse-dev/bourse"
)

// maxLine bounds the line of a frame, in bytes, its newline included.
const maxLine = 512

// maxField bounds an order's id and a media type, in bytes.
const maxField = 192

// verb begins a frame.
type verb uint8

const (
	verbCall   verb = iota // worker to program: CALL id order deadline length type
	verbCancel             // worker to program: CANCEL id
	verbDone               // program to worker: DONE id status length type
)

// frame is the line of one, decoded. Its slices are those of the line.
type frame struct {
	verb     verb
	id       uint64 // at least 1
	order    []byte // of a call
	deadline int64  // of a call: Unix time in milliseconds
	status   int    // of an answer: 200 to 599
	length   int    // of what follows the line, in bytes
	media    []byte // media type of that; nil for none
}

// appendFrame appends the line of f, whose fields are in their ranges.
func appendFrame(to []byte, f *frame) []byte {
	switch f.verb {
	case verbCancel:
		to = append(to, "CANCEL "...)
		return append(strconv.AppendUint(to, f.id, 10), '\n')
	case verbCall:
		to = append(to, "CALL "...)
		to = append(strconv.AppendUint(to, f.id, 10), ' ')
		to = append(append(to, f.order...), ' ')
		to = append(strconv.AppendInt(to, f.deadline, 10), ' ')
	case verbDone:
		to = append(to, "DONE "...)
		to = append(strconv.AppendUint(to, f.id, 10), ' ')
		to = append(strconv.AppendInt(to, int64(f.status), 10), ' ')
	}
	to = append(strconv.AppendInt(to, int64(f.length), 10), ' ')
	if len(f.media) == 0 {
		return append(to, '-', '\n')
	}
	return append(append(to, f.media...), '\n')
}

// parseRequest decodes a line of a worker, without its newline.
func parseRequest(line []byte) (f frame, err error) {
	rest, ok := bytes.CutPrefix(line, []byte("CANCEL "))
	if ok {
		f.verb = verbCancel
		f.id, err = number(rest, math.MaxUint64)
		if err == nil && f.id == 0 {
			err = garbage(line)
		}
		return f, err
	}
	if rest, ok = bytes.CutPrefix(line, []byte("CALL ")); !ok {
		return f, garbage(line)
	}
	f.verb = verbCall
	if f.id, rest, err = field(rest, math.MaxUint64); err != nil || f.id == 0 {
		return f, cmp.Or(err, garbage(line))
	}
	if f.order, rest, ok = bytes.Cut(rest, []byte{' '}); !ok || !word(f.order) {
		return f, garbage(line)
	}
	deadline, rest, err := field(rest, math.MaxInt64)
	if err != nil {
		return f, err
	}
	f.deadline = int64(deadline)
	err = f.parseBody(rest, bourse.MaxPayload)
	return f, err
}

// parseReply decodes a line of a program, without its newline.
func parseReply(line []byte) (f frame, err error) {
	rest, ok := bytes.CutPrefix(line, []byte("DONE "))
	if !ok {
		return f, garbage(line)
	}
	f.verb = verbDone
	if f.id, rest, err = field(rest, math.MaxUint64); err != nil || f.id == 0 {
		return f, cmp.Or(err, garbage(line))
	}
	status, rest, err := field(rest, 599)
	if err == nil && status < 200 {
		err = garbage(line)
	}
	if err != nil {
		return f, err
	}
	f.status = int(status)
	err = f.parseBody(rest, bourse.MaxAnswer)
	return f, err
}

// parseBody decodes the length and the media type that end a line.
func (f *frame) parseBody(rest []byte, most int) error {
	length, kind, err := field(rest, math.MaxInt64)
	switch {
	case err != nil:
		return err
	case length > uint64(most):
		return fmt.Errorf("a frame of %d bytes: it may have no more than %d bytes", length, most)
	}
	f.length = int(length)
	if string(kind) == "-" {
		return nil
	}
	if f.media = kind; len(kind) == 0 || !media(kind) {
		return garbage(kind)
	}
	return nil
}

// field decodes the number before the next space.
func field(rest []byte, most uint64) (n uint64, after []byte, err error) {
	digits, after, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return 0, nil, garbage(rest)
	}
	n, err = number(digits, most)
	return n, after, err
}

// number decodes a decimal number without sign or leading zeros.
func number(digits []byte, most uint64) (n uint64, err error) {
	if len(digits) == 0 || len(digits) > 20 || digits[0] == '0' && len(digits) > 1 {
		return 0, garbage(digits)
	}
	for _, d := range digits {
		if d < '0' || d > '9' || n > (most-uint64(d-'0'))/10 {
			return 0, garbage(digits)
		}
		n = n*10 + uint64(d-'0')
	}
	return n, nil
}

// word reports whether s is a word of ASCII, as an order's id is.
func word[T string | []byte](s T) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) > 0 && len(s) <= maxField
}

// media reports whether s can be where a media type is, or is empty.
func media[T string | []byte](s T) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) == 0 || len(s) <= maxField && s[0] != ' ' && (len(s) > 1 || s[0] != '-')
}

func garbage(b []byte) error {
	return fmt.Errorf("malformed frame: %s", bourse.Quoted(string(b)))
}
