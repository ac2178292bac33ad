package mux

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"github.com/bourse-dev/bourse"
)

// Limits contains the maximum sizes of the parts of frames, in bytes. Both ends must have the same
// limits.
type Limits struct {
	Word    int // maximum size of a call's subject and of a media type
	Payload int // maximum size of a call's payload
	Answer  int // maximum size of an answer's body
}

// Allow reports whether an answer is valid and within the limits.
func (l *Limits) Allow(a *Answer) bool {
	return a.Status >= minStatus && a.Status <= maxStatus && len(a.Body) <= l.Answer && isMedia(a.Type, l.Word)
}

// line returns the maximum size of a frame's line, including its newline.
func (l *Limits) line() int { return 2*l.Word + 128 }

// verb is the first word of a frame.
type verb uint8

const (
	verbCall verb = iota
	verbCancel
	verbPing
	verbDone
	verbLost
	verbPong
)

var verbs = [...]string{verbCall: "CALL", verbCancel: "CANCEL", verbPing: "PING", verbDone: "DONE", verbLost: "LOST", verbPong: "PONG"}

// The range of an answer's status, which is an HTTP status.
const minStatus, maxStatus = 200, 599

// frame is a frame's decoded first line, without the data that follows it. Its slices point into the encoded line.
type frame struct {
	verb     verb
	id       uint64 // the call's number, at least 1; unused for pings and pongs
	subject  []byte // for calls
	deadline int64  // for calls: Unix time in milliseconds; 0 means no deadline
	status   int    // for answers
	length   int    // number of bytes after the line
	media    []byte // media type of the bytes that follow; nil means none
}

// append appends f's line to a buffer. The fields of f must be valid.
func (f *frame) append(to []byte) []byte {
	to = append(to, verbs[f.verb]...)
	if f.verb == verbPing || f.verb == verbPong {
		return append(to, '\n')
	}
	to = strconv.AppendUint(append(to, ' '), f.id, 10)
	switch f.verb {
	case verbCall:
		to = append(append(to, ' '), f.subject...)
		to = strconv.AppendInt(append(to, ' '), f.deadline, 10)
	case verbDone:
		to = strconv.AppendInt(append(to, ' '), int64(f.status), 10)
	default:
		return append(to, '\n')
	}
	to = strconv.AppendInt(append(to, ' '), int64(f.length), 10)
	if len(f.media) == 0 {
		return append(to, " -\n"...)
	}
	return append(append(append(to, ' '), f.media...), '\n')
}

// parse decodes a line, without its newline.
func parse(line []byte, l *Limits) (f frame, err error) {
	word, rest, more := bytes.Cut(line, []byte{' '})
	switch string(word) {
	case "PING", "PONG":
		f.verb = verbPing
		if word[1] == 'O' {
			f.verb = verbPong
		}
		if more {
			err = malformed(line)
		}
		return f, err
	case "CANCEL", "LOST":
		f.verb = verbCancel
		if word[0] == 'L' {
			f.verb = verbLost
		}
		f.id, err = number(rest, 1, math.MaxUint64)
		return f, err
	case "CALL":
		err = f.parseCall(rest, l)
	case "DONE":
		err = f.parseDone(rest, l)
	default:
		err = malformed(line)
	}
	return f, err
}

func (f *frame) parseCall(rest []byte, l *Limits) (err error) {
	f.verb = verbCall
	if f.id, rest, err = field(rest, 1, math.MaxUint64); err != nil {
		return err
	}
	var ok bool
	if f.subject, rest, ok = bytes.Cut(rest, []byte{' '}); !ok || !isWord(f.subject, l.Word) {
		return malformed(rest)
	}
	deadline, rest, err := field(rest, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	f.deadline = int64(deadline)
	return f.parseBody(rest, l.Payload, l.Word)
}

func (f *frame) parseDone(rest []byte, l *Limits) (err error) {
	f.verb = verbDone
	if f.id, rest, err = field(rest, 1, math.MaxUint64); err != nil {
		return err
	}
	status, rest, err := field(rest, minStatus, maxStatus)
	if err != nil {
		return err
	}
	f.status = int(status)
	return f.parseBody(rest, l.Answer, l.Word)
}

// parseBody decodes the length and the media type at the end of a line.
func (f *frame) parseBody(rest []byte, limit, word int) error {
	length, media, err := field(rest, 0, math.MaxInt64)
	switch {
	case err != nil:
		return err
	case length > uint64(limit):
		return fmt.Errorf("the content of a frame has %d bytes, but at most %d bytes are allowed", length, limit)
	}
	f.length = int(length)
	if string(media) == "-" {
		return nil
	}
	if f.media = media; len(media) == 0 || !isMedia(media, word) {
		return malformed(media)
	}
	return nil
}

// field decodes the number before the next space. It also returns the text after that space.
func field(rest []byte, least, limit uint64) (n uint64, after []byte, err error) {
	digits, after, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return 0, nil, malformed(rest)
	}
	n, err = number(digits, least, limit)
	return n, after, err
}

// number decodes a decimal number between least and limit, without a sign or leading zeros.
func number(digits []byte, least, limit uint64) (n uint64, err error) {
	if len(digits) == 0 || len(digits) > 20 || digits[0] == '0' && len(digits) > 1 {
		return 0, malformed(digits)
	}
	for _, d := range digits {
		if d < '0' || d > '9' || n > (limit-uint64(d-'0'))/10 {
			return 0, malformed(digits)
		}
		n = n*10 + uint64(d-'0')
	}
	if n < least {
		return 0, malformed(digits)
	}
	return n, nil
}

// isWord reports whether s is a non-empty ASCII word of at most limit bytes.
func isWord[T string | []byte](s T, limit int) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) > 0 && len(s) <= limit
}

// isMedia reports whether s is empty or can be encoded as a media type.
func isMedia[T string | []byte](s T, limit int) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) == 0 || len(s) <= limit && s[0] != ' ' && (len(s) > 1 || s[0] != '-')
}

func malformed(b []byte) error {
	return fmt.Errorf("malformed frame: %s", bourse.Quoted(string(b)))
}
