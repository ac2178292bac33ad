package enroll

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/wholefile"
	"github.com/bourse-dev/bourse/machinesapi"
)

// KeyFile is a file with keys that a running server shares with other servers. Each line is a key
// or a comment. The first key encrypts, and all keys decrypt.
//
// The file with the cluster's CA is also a KeyFile. Its keys are the CAs' certificates in PEM:
// servers get certificates from the first CA, and accept certificates from all of the CAs. See
// [admission.Bundle].
type KeyFile struct {
	Path  string
	IDs   func(text []byte) ([]string, error) // returns the IDs of the keys in a text, in order, or an error if the text is invalid
	InUse func() []string                     // returns the IDs of the keys that the server uses
	Look  func() (bool, error)                // reads the file again if it has changed; see admission.Live
	New   func() []byte                       // creates a key
	// CheckOldKey returns a failed_precondition error if data that is still needed can be decrypted
	// only with the older of the two keys. CheckOldKey may be nil.
	CheckOldKey func() error
	// Adopt makes the server use the first key, if that requires more than reading the file. Set
	// calls it after the server has loaded the keys, even if they had not changed. It may be
	// nil.
	Adopt func(ctx context.Context, in *KeyRequest, reply *KeyReply) error

	mu sync.Mutex // locked while the file is replaced
}

// maxRereads is the maximum number of calls to KeyFile.Look until a changed file is in use.
const maxRereads = 3

// Report returns the keys that the server uses.
func (f *KeyFile) Report() KeyReply {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.report()
}

// Set replaces the file, waits until the server uses the new keys, and returns them. Servers
// replace their files one after another. In the meantime, some servers use the old first key and
// others use the new one, so every server must accept both. Therefore, the server must already have
// the first of the new keys, and the new keys must include the server's current first key. Errors:
// invalid; failed_precondition if the old and the new keys do not overlap in this way, or if a
// removed key is still needed; conflict if the server has already completed this step or a later
// one.
func (f *KeyFile) Set(ctx context.Context, in *KeyRequest) (KeyReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	reply, err := f.set(in.Text)
	if err == nil && f.Adopt != nil {
		err = f.Adopt(ctx, in, &reply)
	}
	return reply, err
}

func (f *KeyFile) set(text []byte) (KeyReply, error) {
	want, err := f.IDs(text)
	if err != nil {
		return KeyReply{}, err
	}
	next, err := parseRing(text)
	if err != nil {
		return KeyReply{}, err
	}
	has := f.report()
	old, _ := os.ReadFile(f.Path) // if it cannot be read, it is replaced
	written := bytes.Equal(old, text)
	switch {
	case next.number == has.Number && slices.Equal(has.Keys, want):
		return has, nil
	case !slices.Contains(want, has.Keys[0]) || !slices.Contains(has.Keys, want[0]):
		return KeyReply{}, bourse.Errorf(bourse.CodeFailedPrecondition, "the server encrypts with another key: copy %s from another server", f.Path)
	case next.number <= has.Number && !written:
		return KeyReply{}, bourse.Errorf(bourse.CodeConflict, "the server has already completed this step or a later one, with other keys")
	}
	if len(want) < len(has.Keys) && f.CheckOldKey != nil {
		if err := f.CheckOldKey(); err != nil {
			return KeyReply{}, err
		}
	}
	if !written { // another server on this host may have the same file
		if err := wholefile.Write(f.Path, text, 0o600); err != nil {
			return KeyReply{}, bourse.Errorf(bourse.CodeUnavailable, "write the keys: %w", err)
		}
	}
	for range maxRereads {
		if _, err := f.Look(); err != nil {
			return KeyReply{}, err
		}
		if slices.Equal(f.InUse(), want) {
			return f.report(), nil
		}
	}
	return KeyReply{}, bourse.Errorf(bourse.CodeUnavailable, "%s was changed by another program at the same time", f.Path)
}

// report is like Report, but the caller must hold the lock.
func (f *KeyFile) report() KeyReply {
	text, _ := os.ReadFile(f.Path) // a file that cannot be read, or was edited by hand, has no number
	r, err := parseRing(text)
	if err != nil {
		r.number = 0
	}
	return KeyReply{Keys: f.InUse(), Number: r.number}
}

// ring is the parsed text of a key file: one key, or two keys while one replaces the other.
type ring struct {
	keys    []string // the first one encrypts
	signers []string // certificates, in PEM, that remain valid for signatures although their CA was removed
	// number identifies the current step. Steps are numbered consecutively across all rotations.
	number int
}

// steps maps a ring's number, modulo 3, to the step.
var steps = [3]machinesapi.RotationStep{machinesapi.RotationRemove, machinesapi.RotationAdd, machinesapi.RotationUse}

func (r ring) step() machinesapi.RotationStep { return steps[r.number%len(steps)] }

// numberMark begins the comment that contains a ring's number.
const numberMark = "# rotation step "

// parseRing parses the text of a key file. Errors: failed_precondition if the text contains several
// keys and does not indicate which of them is new.
func parseRing(text []byte) (ring, error) {
	var r ring
	bundle, err := admission.ParseBundle(text)
	inPEM := err == nil
	if inPEM {
		r.keys, r.signers = inLines(bundle.CAs), inLines(bundle.Signers)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if mark, ok := strings.CutPrefix(line, numberMark); ok {
			if n, err := strconv.Atoi(mark); err == nil && n >= 0 {
				r.number = n
			}
		}
		if line != "" && line[0] != '#' && !inPEM {
			r.keys = append(r.keys, line)
		}
	}
	between := r.number%len(steps) != 0
	switch {
	case len(r.keys) == 1 && between: // someone has removed the other key by hand
		r.number = nextRotation(r.number)
	case len(r.keys) != 1 && (len(r.keys) != 2 || !between):
		return r, bourse.Errorf(bourse.CodeFailedPrecondition, "the file has %d keys, but no comment states which one is new: on every server, remove all but one", len(r.keys))
	}
	return r, nil
}

// nextRotation returns the number at which the next rotation starts. It is the given number,
// rounded up to a multiple of the number of steps.
func nextRotation(number int) int {
	return (number + len(steps) - 1) / len(steps) * len(steps)
}

// text returns the text of a key file.
func (r ring) text() []byte {
	return fmt.Appendf(nil, "%s%d\n%s\n", numberMark, r.number, strings.Join(slices.Concat(r.keys, r.signers), "\n"))
}

// inLines encodes each certificate in PEM, without a trailing newline.
func inLines(certs []*x509.Certificate) []string {
	out := make([]string, len(certs))
	for i, c := range certs {
		out[i] = strings.TrimSpace(string(admission.CertPEM(c)))
	}
	return out
}

// with returns the ring for the first step of a rotation to the given key. highest is the highest
// step number of any server.
func (r ring) with(key []byte, highest int) ring {
	return ring{keys: []string{r.keys[0], strings.TrimSpace(string(key))}, signers: r.signers, number: nextRotation(highest) + 1}
}

// next returns the ring for the next step.
func (r ring) next() ring {
	if r.step() == machinesapi.RotationAdd {
		return ring{keys: []string{r.keys[1], r.keys[0]}, signers: r.signers, number: r.number + 1}
	}
	return ring{keys: r.keys[:1], signers: r.signers, number: r.number + 1}
}
