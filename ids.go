package bourse

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// AppName names an app: 1 to 63 of a-z, 0-9 and "-", beginning and ending
// with a letter or digit, so that it can be a DNS label.
type AppName string

// WorkerID names a worker in its cluster; same alphabet as AppName. It is
// chosen at the worker's first start and kept in its store.
type WorkerID string

// WorkerTag is the 24-bit number that a worker puts in front of the ids of
// its machines, so that an id is an address. 0 means "none chosen yet".
type WorkerTag uint32

// MachineID is 14 lower-case hex digits: 6 of the worker's tag, 8 random ones.
type MachineID string

// The ids below are ULIDs (26 characters, Crockford base 32, ordered by time).
type (
	// InstanceID names one version of a machine.
	InstanceID string
	// OrderID names an order and is its idempotency key.
	OrderID string
	// EventID names one event of a machine.
	EventID string
)

var machinePattern = regexp.MustCompile(`^[0-9a-f]{14}$`)

// isLabel reports whether s is 1 to 63 of a-z, 0-9 and "-", and begins and ends
// with a letter or digit. It is asked several times for each order, where a
// regular expression would be felt.
func isLabel(s string) bool {
	for i := range len(s) {
		inside := i > 0 && i < len(s)-1
		if !isLetter(s[i]) && !isDigit(s[i]) && (s[i] != '-' || !inside) {
			return false
		}
	}
	return s != "" && len(s) <= 63
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// Validate reports CodeInvalid unless n has the shape of an app name.
func (n AppName) Validate() error { return validateLabel("app name", string(n)) }

// Validate reports CodeInvalid unless w has the shape of a worker id.
func (w WorkerID) Validate() error { return validateLabel("worker id", string(w)) }

func validateLabel(what, s string) error {
	if !isLabel(s) {
		return Errorf(CodeInvalid, "%s %s: use 1 to 63 of a-z, 0-9 and \"-\", beginning and ending with a letter or digit", what, Quoted(s))
	}
	return nil
}

// ValidateMachineName reports CodeInvalid unless s can name a machine in its
// app: the alphabet of an app name.
func ValidateMachineName(s string) error { return validateLabel("machine name", s) }

// String returns the six hex digits that begin the ids of the tag's machines.
func (t WorkerTag) String() string { return fmt.Sprintf("%06x", uint32(t)&0xffffff) }

// Validate reports CodeInvalid unless m has the shape of a machine id.
func (m MachineID) Validate() error {
	if !machinePattern.MatchString(string(m)) {
		return Errorf(CodeInvalid, "machine id %s: want 14 hex digits", Quoted(string(m)))
	}
	return nil
}

// Tag returns the tag of the worker that owns m, 0 when m is malformed.
func (m MachineID) Tag() WorkerTag {
	if m.Validate() != nil {
		return 0
	}
	n, err := strconv.ParseUint(string(m[:6]), 16, 32)
	if err != nil {
		return 0
	}
	return WorkerTag(n)
}

// NewMachineID makes an id that routes to the worker with this tag.
func NewMachineID(tag WorkerTag) MachineID {
	var b [4]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails
	return MachineID(tag.String() + hex.EncodeToString(b[:]))
}

// NewOrderID makes an order id for the present moment.
func NewOrderID() OrderID { return OrderID(ulid.Make().String()) }

// NewInstanceID makes a version id for the present moment.
func NewInstanceID() InstanceID { return InstanceID(ulid.Make().String()) }

// Time returns when the version was made, the zero time for what is no such id.
func (id InstanceID) Time() time.Time {
	u, err := ulid.ParseStrict(string(id))
	if err != nil {
		return time.Time{}
	}
	return u.Timestamp()
}

// Validate reports CodeInvalid unless o is a ULID.
func (o OrderID) Validate() error {
	if _, err := ulid.ParseStrict(string(o)); err != nil {
		return Errorf(CodeInvalid, "order id %s: want a ULID (26 characters)", Quoted(string(o)))
	}
	return nil
}

// EventIDAt makes the event id of an effect that happened at a known time.
// The same time and seed give the same id, so an effect whose record was lost
// in a crash is told again under the id it was first acknowledged with.
func EventIDAt(at time.Time, seed [10]byte) EventID {
	var id ulid.ULID
	_ = id.SetTime(uint64(max(0, at.UnixMilli()))) // fails past the year 10889 only
	_ = id.SetEntropy(seed[:])                     // fails on a wrong length only
	return EventID(id.String())
}

// Quoted shows s in an error text: quoted, control characters escaped, cut at
// 64 bytes.
func Quoted(s string) string {
	const most = 64
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}
