package logs

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/bourse-dev/bourse"
)

// note says how far a spool has been moved into the log: it is written before
// the records that it tells of, and over the one before. The kernel does not
// stop in the middle of so short a write because the process is killed.
type note struct {
	Generation int       `json:"gen"`            // of the spool's file in use; 1 or more
	From       int64     `json:"from"`           // the bytes from here
	To         int64     `json:"to"`             // to here
	At         time.Time `json:"at,omitzero"`    // became records of this time
	Last       bool      `json:"last,omitempty"` // of an earlier release: a last line without its newline became a whole one
	Place      place     `json:"place,omitzero"` // there
}

// noteSize is how many bytes each note takes.
const noteSize = 256

func (n note) encode() ([]byte, error) {
	b, err := json.Marshal(n)
	if err != nil || len(b) >= noteSize {
		return nil, bourse.Errorf(bourse.CodeInternal, "a note of %d bytes: %w", len(b), err)
	}
	b = append(b, bytes.Repeat([]byte(" "), noteSize-1-len(b))...)
	return append(b, '\n'), nil
}

// decodeNote reads a note; false for what is none, such as that of a spool
// which has just been begun.
func decodeNote(b []byte) (note, bool) {
	var n note
	if len(b) != noteSize || json.Unmarshal(b, &n) != nil {
		return note{}, false
	}
	sound := n.Generation > 0 && n.From >= 0 && n.From <= n.To && n.To-n.From <= spoolMost &&
		n.Place.File >= 0 && n.Place.Offset >= 0 && n.At.Year() >= 0 && n.At.Year() <= 9999
	return n, sound
}
