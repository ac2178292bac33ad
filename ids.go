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

// AppName names an app: 1 to 63 of a-z, 0-9 and "-", beginning and ending
// with a letter or digit, so that it can be a DNS label.
type AppName string

// WorkerID names a worker in its cluster, in the same alphabet as AppName. It is
// chosen at the worker's first start and stored there.
type WorkerID string

// WorkerTag is a 24-bit number that begins the ids of a worker's machines, so that an
// id is also an address. 0 means that none has been chosen yet.
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
// with a letter or digit. It is called several times per order, for which a regular
// expression would be too slow.
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

// NewMachineID returns a new id that leads to the worker with this tag.
func NewMachineID(tag WorkerTag) MachineID {
	var b [4]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails
	return MachineID(tag.String() + hex.EncodeToString(b[:]))
}

// NewOrderID returns a new order id that contains the current time.
func NewOrderID() OrderID { return OrderID(ulid.Make().String()) }

// NewInstanceID returns a new version id that contains the current time.
func NewInstanceID() InstanceID { return InstanceID(ulid.Make().String()) }

// Time returns the time at which the version was created, or the zero time if the id is
// malformed.
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

// EventIDAt returns the event id of an effect that happened at a known time. The same
// time and seed give the same id, so an effect whose record was lost in a crash is
// recorded again under the id with which it was first acknowledged.
func EventIDAt(at time.Time, seed [10]byte) EventID {
	var id ulid.ULID
	_ = id.SetTime(uint64(max(0, at.UnixMilli()))) // fails past the year 10889 only
	_ = id.SetEntropy(seed[:])                     // fails on a wrong length only
	return EventID(id.String())
}

// Quoted returns s for an error text: quoted, with control characters escaped, and cut
// to 64 bytes.
func Quoted(s string) string {
	const most = 64
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}

// TagChoices is the number of tags that a worker may choose from. There is more than
// one, because two workers' ids may lead to the same tag.
const TagChoices = 4

// Tags returns the tags that the worker with this id may choose, in order of preference.
// They are derived from the id, so a proof of the id also proves the tag.
func (w WorkerID) Tags() [TagChoices]WorkerTag {
	var out [TagChoices]WorkerTag
	for i := range out {
		h := sha256.Sum256([]byte("bourse worker tag\x00" + string(w) + "\x00" + strconv.Itoa(i)))
		out[i] = max(1, WorkerTag(h[0])<<16|WorkerTag(h[1])<<8|WorkerTag(h[2]))
	}
	return out
}

// TagRank returns a tag's index in the worker's Tags, or TagChoices if it is not one of
// them.
func (w WorkerID) TagRank(tag WorkerTag) int {
	tags := w.Tags()
	if i := slices.Index(tags[:], tag); i >= 0 {
		return i
	}
	return TagChoices
}

// Duration is a time.Duration that is encoded in JSON as a Go string ("1m30s"). It is
// decoded from a string or a number of nanoseconds, because clients of the Machines API
// send both.
type Duration time.Duration

// MarshalJSON writes the Go form.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads a Go duration string or nanoseconds.
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

// Signal is the name of a signal, such as "SIGTERM". Its JSON may also be a number.
type Signal string

// signalNumbers holds the signals that may be sent to a machine, by their
// numbers on Linux.
var signalNumbers = map[Signal]int{
	"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGABRT": 6, "SIGKILL": 9, "SIGUSR1": 10, "SIGUSR2": 12,
	"SIGALRM": 14, "SIGTERM": 15, "SIGCONT": 18, "SIGSTOP": 19, "SIGTSTP": 20, "SIGWINCH": 28,
}

// ParseSignal reads "SIGTERM", "term" or "15".
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

// Validate reports CodeInvalid unless s is a known signal's name.
func (s Signal) Validate() error {
	if _, ok := signalNumbers[s]; !ok {
		return Errorf(CodeInvalid, "invalid signal %s: use a name such as SIGTERM", Quoted(string(s)))
	}
	return nil
}

// Number returns the signal's number on Linux, 0 for an unknown one.
func (s Signal) Number() int { return signalNumbers[s] }

// UnmarshalJSON reads a name or a number.
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

// Requirement is a condition of an order beyond its size: a label's value, or an amount
// of a countable.
type Requirement struct {
	Label string // set when it is text
	Count int64  // set when it is a number; 1 or more
}

// MarshalJSON writes the text or the number.
func (r Requirement) MarshalJSON() ([]byte, error) {
	if r.Count != 0 {
		return json.Marshal(r.Count)
	}
	return json.Marshal(r.Label)
}

// UnmarshalJSON reads a string or a whole number of at least 1.
func (r *Requirement) UnmarshalJSON(b []byte) error {
	*r = Requirement{}
	if string(b) != "null" && json.Unmarshal(b, &r.Label) == nil {
		return nil
	}
	if err := json.Unmarshal(b, &r.Count); err != nil || r.Count < 1 || r.Count > MaxAmount {
		return Errorf(CodeInvalid, "invalid requirement %s: use a text or a whole number from 1 to %d", Quoted(string(b)), int64(MaxAmount))
	}
	return nil
}

// String returns the requirement in the form in which users write it.
func (r Requirement) String() string {
	if r.Count != 0 {
		return strconv.FormatInt(r.Count, 10)
	}
	return r.Label
}

// Requirements maps names to conditions: a text must equal the worker's label of that
// name, and a number is taken from its countable of that name. A worker refuses an order
// with a name that it does not know.
type Requirements map[string]Requirement

// LabelWorker is a label of every worker whose value is the worker's own name. An order
// that requires it can be filled only by that worker.
const LabelWorker = "worker"

// On returns r with the requirement of a particular worker.
func (r Requirements) On(worker WorkerID) Requirements {
	out := maps.Clone(r)
	if out == nil {
		out = Requirements{}
	}
	out[LabelWorker] = Requirement{Label: string(worker)}
	return out
}

// Validate reports CodeInvalid for names or values that no worker can have.
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
			return Errorf(CodeInvalid, "invalid config.requirements.%s: use a text or a whole number from 1 to %d", name, int64(MaxAmount))
		}
	}
	return nil
}

// ValidateRequirementName reports CodeInvalid unless s can name a label or a
// countable: parts as in an app name, joined by dots.
func ValidateRequirementName(s string) error {
	for part := range strings.SplitSeq(s, ".") {
		if !isLabel(part) || len(s) > 128 {
			return Errorf(CodeInvalid, "invalid requirement name %s: use a-z, 0-9, \"-\" and dots", Quoted(s))
		}
	}
	return nil
}

var _ fmt.Stringer = Requirement{}

// An id that a caller chooses for an order is valid only within the order's app: the
// order's actual id is derived from both. It consists of the chosen id's timestamp, a
// five-byte hash of the app and the chosen id, and a five-byte checksum of the app and
// the preceding bytes. The checksum identifies ids that are already derived, so deriving
// twice has no effect. A client that knows the id of another app's order cannot refer to
// that order.

// markBytes is the length of the checksum at the end of a derived id.
const markBytes = 5

// In returns the actual id of an order in the app with this id, for the id that its
// caller chose. It returns "" if o is malformed. It is idempotent.
func (o OrderID) In(app string) OrderID { return OrderID(idIn("order", string(o), app)) }

// In returns the actual key of a reservation whose first order is in the app with this
// id, for the key that its caller chose. It returns "" if k is malformed. It is
// idempotent.
func (k ReservationKey) In(app string) ReservationKey {
	return ReservationKey(idIn("reservation", string(k), app))
}

func idIn(what, chosen, app string) string {
	id, err := ulid.ParseStrict(chosen)
	if err != nil {
		return ""
	}
	marked := id
	mark(&marked, what, app)
	if marked == id {
		return id.String()
	}
	made := sumOf(what, app, string(id[:]))
	copy(id[6:], made[:len(id)-6-markBytes])
	mark(&id, what, app)
	return id.String()
}

// mark replaces the end of id with the checksum.
func mark(id *ulid.ULID, what, app string) {
	body := id[:len(id)-markBytes]
	sum := sumOf("mark of "+what, app, string(body))
	copy(id[len(body):], sum[:])
}

func sumOf(what, app, rest string) [sha256.Size]byte {
	return sha256.Sum256([]byte(what + "\x00" + app + "\x00" + rest))
}
