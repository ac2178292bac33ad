package run

import (
	"bytes"
	"encoding/json"

	"github.com/bourse-dev/bourse"
)

// Note describes the outcome of a release. It is stored in the release's metadata.
type Note struct {
	By   string     `json:"by,omitempty"`   // owner of the run
	Why  string     `json:"why,omitempty"`  // reason why the run failed or was interrupted
	Left []Leftover `json:"left,omitempty"` // changes that could not be undone
	More int        `json:"more,omitempty"` // number of items that did not fit into Left
}

// noteKey is the key of the [Note] in a release's metadata.
const noteKey = "bourse_run"

// Limits on the size of a release's metadata, in bytes.
const (
	maxMetadata = 64 << 10 // the API's limit
	maxNote     = 7 << 10
	maxNoteText = 1 << 10 // limit for each of By and Why
)

// withNote returns a release's metadata with a note added. It shortens the note if necessary, and preserves the
// metadata's other members. It returns CodeFailedPrecondition if another client has stored metadata that is not a JSON
// object.
func withNote(metadata json.RawMessage, note Note) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if len(metadata) > 0 {
		if err := json.Unmarshal(metadata, &members); err != nil {
			return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "the release's metadata is not a JSON object: %w", err)
		}
	}
	if members == nil { // the metadata was null
		members = map[string]json.RawMessage{}
	}
	delete(members, noteKey)
	others, err := object(members)
	if err != nil {
		return nil, err
	}
	text := note.within(min(maxNote, maxMetadata-len(others)-len(noteKey)-len(`"":,`)))
	if text == nil {
		return others, nil
	}
	members[noteKey] = text
	return object(members)
}

// object encodes members as a JSON object. It does not escape HTML characters, because escaping would take more
// space.
func object(members map[string]json.RawMessage) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(members); err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "encode a release's metadata: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// within encodes the note as JSON of at most room bytes. It omits items of Left if necessary, and returns nil if the
// note does not fit even without Left.
func (n Note) within(room int) json.RawMessage {
	n.By, n.Why = cut(n.By), cut(n.Why)
	left := n.Left
	for keep := len(left); ; keep /= 2 {
		n.Left, n.More = left[:keep], n.More+len(n.Left)-keep
		text, err := json.Marshal(n)
		switch {
		case err == nil && len(text) <= room:
			return text
		case keep == 0:
			return nil
		}
	}
}

// cut shortens s to maxNoteText bytes. If this splits a character, JSON encoding replaces the remaining bytes of that
// character.
func cut(s string) string { return s[:min(len(s), maxNoteText)] }
