package bourse

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"
)

// AppName is the name of an app. It consists of 1 to 63 characters (a-z, 0-9 and "-"), and begins
// and ends with a letter or digit, so that it can be a DNS label.
type AppName string

// WorkerID is the name of a worker in its cluster. It has the same form as an AppName. It is chosen
// when the worker first starts, and stored on the worker.
type WorkerID string

// WorkerTag is the 24-bit number at the start of the IDs of a worker's machines. It makes each ID
// an address: any server can find the machine's worker from the ID alone. 0 means that no tag has
// been chosen yet.
type WorkerTag uint32

// MachineID identifies a machine. It consists of 14 lower-case hex digits: 6 for the worker's tag,
// and 8 random ones.
type MachineID string

// The following IDs are ULIDs (26 characters of Crockford base 32, ordered by time).
type (
	// InstanceID identifies one version of a machine.
	InstanceID string
	// OrderID identifies an order, and is its idempotency key.
	OrderID string
	// EventID identifies one event of a machine.
	EventID string
)

var machinePattern = regexp.MustCompile(`^[0-9a-f]{14}$`)

// isLabel reports whether s consists of 1 to 63 characters (a-z, 0-9 and "-"), and begins and ends
// with a letter or digit. It does not use a regular expression, because it is called several times
// for each order.
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

// Validate returns CodeInvalid unless n has the form of an app name.
func (n AppName) Validate() error { return validateLabel("app name", string(n)) }

// Validate returns CodeInvalid unless w has the form of a worker ID.
func (w WorkerID) Validate() error { return validateLabel("worker id", string(w)) }

func validateLabel(what, s string) error {
	if !isLabel(s) {
		return Errorf(CodeInvalid, "%s %s: use 1 to 63 of a-z, 0-9 and \"-\", beginning and ending with a letter or digit", what, Quoted(s))
	}
	return nil
}

// ValidateMachineName returns CodeInvalid unless s can be the name of a machine. It must have the
// form of an app name.
func ValidateMachineName(s string) error { return validateLabel("machine name", s) }

// String returns the six hex digits at the start of the worker's machine IDs.
func (t WorkerTag) String() string { return fmt.Sprintf("%06x", uint32(t)&0xffffff) }

// Validate returns CodeInvalid unless m has the form of a machine ID.
func (m MachineID) Validate() error {
	if !machinePattern.MatchString(string(m)) {
		return Errorf(CodeInvalid, "machine id %s: want 14 hex digits", Quoted(string(m)))
	}
	return nil
}

// Tag returns the tag of the worker that owns the machine, or 0 if m is malformed.
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

// NewMachineID returns a new ID for a machine of the worker with the given tag.
func NewMachineID(tag WorkerTag) MachineID {
	var b [4]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails
	return MachineID(tag.String() + hex.EncodeToString(b[:]))
}

// NewOrderID returns a new order ID, which contains the current time.
func NewOrderID() OrderID { return OrderID(ulid.Make().String()) }

// NewInstanceID returns a new version ID, which contains the current time.
func NewInstanceID() InstanceID { return InstanceID(ulid.Make().String()) }

// Time returns the time when the version was created, or the zero time if the ID is malformed.
func (id InstanceID) Time() time.Time {
	u, err := ulid.ParseStrict(string(id))
	if err != nil {
		return time.Time{}
	}
	return u.Timestamp()
}

// Validate returns CodeInvalid unless o is a ULID.
func (o OrderID) Validate() error {
	if _, err := ulid.ParseStrict(string(o)); err != nil {
		return Errorf(CodeInvalid, "order id %s: want a ULID (26 characters)", Quoted(string(o)))
	}
	return nil
}

// EventIDAt returns the ID of an event that happened at a known time. The same time and seed always
// produce the same ID. If a crash prevents an acknowledged event from being recorded, the event can
// therefore be recorded later with the same ID.
func EventIDAt(at time.Time, seed [10]byte) EventID {
	var id ulid.ULID
	_ = id.SetTime(uint64(max(0, at.UnixMilli()))) // fails only after the year 10889
	_ = id.SetEntropy(seed[:])                     // fails only if the length is wrong
	return EventID(id.String())
}

// Quoted formats s for error messages: in quotation marks, with control characters escaped, and
// shortened to 64 bytes.
func Quoted(s string) string {
	const most = 64
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}

// TagChoices is the number of tags that a worker may choose from. A single tag is not enough,
// because two worker IDs may produce the same tag.
const TagChoices = 4

// Tags returns the tags that the worker with this ID may choose from, in order of preference. The
// tags are derived from the ID, so a proof of the ID also proves the tag.
func (w WorkerID) Tags() [TagChoices]WorkerTag {
	var out [TagChoices]WorkerTag
	for i := range out {
		h := sha256.Sum256([]byte("bourse worker tag\x00" + string(w) + "\x00" + strconv.Itoa(i)))
		out[i] = max(1, WorkerTag(h[0])<<16|WorkerTag(h[1])<<8|WorkerTag(h[2]))
	}
	return out
}

// TagRank returns the index of a tag in the worker's Tags. If tag is not one of them, it returns
// TagChoices.
func (w WorkerID) TagRank(tag WorkerTag) int {
	tags := w.Tags()
	if i := slices.Index(tags[:], tag); i >= 0 {
		return i
	}
	return TagChoices
}

// Duration is a time.Duration that is encoded in JSON as a string in Go's format, such as "1m30s".
// It is decoded from such a string or from a number of nanoseconds, because clients of the Machines
// API send both.
type Duration time.Duration

// MarshalJSON encodes the duration as a string in Go's format.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON decodes a string in Go's format or a number of nanoseconds.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		if s == "" {
			*d = 0
			return nil
		}
		v, err := time.ParseDuration(s)
		if err != nil {
			return Errorf(CodeInvalid, "invalid duration %s: use 15s or 1m30s", Quoted(s))
		}
		*d = Duration(v)
		return nil
	}
	var n int64
	if err := json.Unmarshal(b, &n); err != nil {
		return Errorf(CodeInvalid, "invalid duration %s: use 15s or a number of nanoseconds", Quoted(string(b)))
	}
	*d = Duration(n)
	return nil
}

// Signal is the name of a signal, such as "SIGTERM". In JSON, it may also be a number.
type Signal string

// signalNumbers contains the signals that may be sent to a machine, with their numbers on Linux.
var signalNumbers = map[Signal]int{
	"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGABRT": 6, "SIGKILL": 9, "SIGUSR1": 10, "SIGUSR2": 12,
	"SIGALRM": 14, "SIGTERM": 15, "SIGCONT": 18, "SIGSTOP": 19, "SIGTSTP": 20, "SIGWINCH": 28,
}

// ParseSignal parses a signal in a form such as "SIGTERM", "term" or "15".
func ParseSignal(s string) (Signal, error) {
	name := Signal(strings.ToUpper(s))
	if n, err := strconv.Atoi(s); err == nil {
		for signal, number := range signalNumbers {
			if number == n {
				return signal, nil
			}
		}
	}
	if !strings.HasPrefix(string(name), "SIG") {
		name = "SIG" + name
	}
	return name, name.Validate()
}

// Validate returns CodeInvalid unless s is the name of a known signal.
func (s Signal) Validate() error {
	if _, ok := signalNumbers[s]; !ok {
		return Errorf(CodeInvalid, "invalid signal %s: use a name such as SIGTERM", Quoted(string(s)))
	}
	return nil
}

// Number returns the number of the signal on Linux, or 0 if the signal is unknown.
func (s Signal) Number() int { return signalNumbers[s] }

// UnmarshalJSON decodes a name or a number.
func (s *Signal) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) != nil {
		var n int
		if err := json.Unmarshal(b, &n); err != nil {
			return Errorf(CodeInvalid, "invalid signal %s: use a name or a number", Quoted(string(b)))
		}
		text = strconv.Itoa(n)
	}
	if text == "" {
		*s = ""
		return nil
	}
	v, err := ParseSignal(text)
	if err != nil {
		return err
	}
	*s = v
	return nil
}

// Requirement is a condition that an order contains in addition to the machine's size. It is either
// the value that a label must have, or the amount of a countable resource that the order takes.
type Requirement struct {
	Label string // value of a label; "" for an amount
	Count int64  // amount, 1 or more; 0 for a label
}

// MarshalJSON encodes the label's value or the amount.
func (r Requirement) MarshalJSON() ([]byte, error) {
	if r.Count != 0 {
		return json.Marshal(r.Count)
	}
	return json.Marshal(r.Label)
}

// UnmarshalJSON decodes a string, or a whole number of at least 1.
func (r *Requirement) UnmarshalJSON(b []byte) error {
	*r = Requirement{}
	if string(b) != "null" && json.Unmarshal(b, &r.Label) == nil {
		return nil
	}
	if err := json.Unmarshal(b, &r.Count); err != nil || r.Count < 1 || r.Count > MaxAmount {
		return Errorf(CodeInvalid, "invalid requirement %s: use a string or a whole number from 1 to %d", Quoted(string(b)), int64(MaxAmount))
	}
	return nil
}

// String formats the requirement as users write it.
func (r Requirement) String() string {
	if r.Count != 0 {
		return strconv.FormatInt(r.Count, 10)
	}
	return r.Label
}

// Requirements maps names to conditions. If a name's condition is a string, the worker must have a
// label with this name and value. If it is a number, the order takes that amount of the worker's
// countable resource with this name. A worker refuses the order if a required label or resource
// does not exist there.
type Requirements map[string]Requirement

// LabelWorker is a label that every worker has. Its value is the worker's own name, so an order
// that requires it can be filled only by that worker.
const LabelWorker = "worker"

// On returns a copy of r with the additional requirement that the given worker fill the order.
func (r Requirements) On(worker WorkerID) Requirements {
	out := maps.Clone(r)
	if out == nil {
		out = Requirements{}
	}
	out[LabelWorker] = Requirement{Label: string(worker)}
	return out
}

// Validate returns CodeInvalid if a name or value is malformed, so that no worker could match it.
func (r Requirements) Validate() error {
	if len(r) > maxConfigEntries {
		return Errorf(CodeInvalid, "invalid config.requirements: %d entries, at most %d", len(r), maxConfigEntries)
	}
	for name, v := range r {
		if err := ValidateRequirementName(name); err != nil {
			return err
		}
		switch {
		case len(v.Label) > 255:
			return Errorf(CodeInvalid, "invalid config.requirements.%s: %d bytes, at most 255", name, len(v.Label))
		case v.Count < 0 || v.Count > MaxAmount || v.Count != 0 && v.Label != "" || !utf8.ValidString(v.Label):
			return Errorf(CodeInvalid, "invalid config.requirements.%s: use a string or a whole number from 1 to %d", name, int64(MaxAmount))
		}
	}
	return nil
}

// ValidateRequirementName returns CodeInvalid unless s can be the name of a label or a countable
// resource. Such a name consists of one or more parts joined by dots, each in the form of an app
// name.
func ValidateRequirementName(s string) error {
	for part := range strings.SplitSeq(s, ".") {
		if !isLabel(part) || len(s) > 128 {
			return Errorf(CodeInvalid, "invalid requirement name %s: use a-z, 0-9, \"-\" and dots", Quoted(s))
		}
	}
	return nil
}

var _ fmt.Stringer = Requirement{}

// If a caller chooses an ID for an order, the ID is valid only within the order's app. The order's
// actual ID is derived from the app and the chosen ID. It consists of the timestamp of the chosen
// ID, a five-byte hash of the app and the chosen ID, and a five-byte checksum of the app and the
// preceding bytes. The checksum identifies derived IDs, so deriving an ID again has no effect.
// Because the checksum includes the app, a client that knows the ID of another app's order cannot
// use it to refer to that order.

// checksumBytes is the length of the checksum at the end of a derived ID.
const checksumBytes = 5

// In returns the actual ID of an order. app is the ID of the order's app. o is either the ID that
// the caller has chosen, or an ID that In has already returned for the same app. If o is malformed,
// In returns "".
func (o OrderID) In(app string) OrderID { return OrderID(idIn("order", string(o), app)) }

// In returns the actual key of a reservation. app is the ID of the app that the reservation's first
// order belongs to. k is either the key that the caller has chosen, or a key that In has already
// returned for the same app. If k is malformed, In returns "".
func (k ReservationKey) In(app string) ReservationKey {
	return ReservationKey(idIn("reservation", string(k), app))
}

func idIn(what, chosen, app string) string {
	id, err := ulid.ParseStrict(chosen)
	if err != nil {
		return ""
	}
	marked := id
	addChecksum(&marked, what, app)
	if marked == id {
		return id.String()
	}
	made := sumOf(what, app, string(id[:]))
	copy(id[6:], made[:len(id)-6-checksumBytes])
	addChecksum(&id, what, app)
	return id.String()
}

// addChecksum replaces the end of id with the checksum for an app.
func addChecksum(id *ulid.ULID, what, app string) {
	body := id[:len(id)-checksumBytes]
	sum := sumOf("mark of "+what, app, string(body))
	copy(id[len(body):], sum[:])
}

func sumOf(what, app, rest string) [sha256.Size]byte {
	return sha256.Sum256([]byte(what + "\x00" + app + "\x00" + rest))
}
