package bourse

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// ReservationKey identifies a reservation on its workers. It is a ULID, and serves as the
// idempotency key of the reservation.
type ReservationKey string

// ReservationID consists of the key of a reservation and the tags of its workers, as in
// "01ARZ3NDEKTSV4RRFFQ69G5FAV-0a1b2c.d4e5f6". Like a machine's ID, it also serves as an address:
// any broker can derive the workers from it, so brokers do not have to store reservations.
type ReservationID string

// Defaults and limits of a reservation.
const (
	DefaultHold       = time.Minute
	MinHold           = time.Second
	MaxHold           = time.Hour
	MaxReservedOrders = 64
)

// NewReservationKey returns a new key, which contains the current time.
func NewReservationKey() ReservationKey { return ReservationKey(ulid.Make().String()) }

// Validate returns CodeInvalid unless k is a ULID in capital letters. Lower case is not valid, so
// that each reservation has only one key.
func (k ReservationKey) Validate() error {
	if id, err := ulid.ParseStrict(string(k)); err != nil || id.String() != string(k) {
		return Errorf(CodeInvalid, "reservation key %s: want a ULID (26 characters)", Quoted(string(k)))
	}
	return nil
}

// Order returns the ID of the n-th order of the reservation. The same n always produces the same
// ID, so a repeated request finds the existing holds.
func (k ReservationKey) Order(n int) OrderID { return k.derive("order", uint32(n)) }

// All returns the order ID that is used to cancel the whole reservation on a worker. A client
// cannot choose this ID for an order. Canceling a reservation therefore never cancels another
// order, even if that order's ID equals the reservation's key.
func (k ReservationKey) All() OrderID { return k.derive("all", 0) }

func (k ReservationKey) derive(what string, n uint32) OrderID {
	id, err := ulid.ParseStrict(string(k))
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint32([]byte(string(k)+" "+what+" "), n))
	_ = id.SetEntropy(sum[:10]) // fails only if the length is wrong
	return OrderID(id.String())
}

// At returns the ID of the reservation with key k, given the tags of the workers that have holds
// for it.
func (k ReservationKey) At(tags []WorkerTag) ReservationID {
	tags = slices.Compact(slices.Sorted(slices.Values(tags)))
	parts := make([]string, len(tags))
	for i, t := range tags {
		parts[i] = t.String()
	}
	return ReservationID(string(k) + "-" + strings.Join(parts, "."))
}

// Key returns the key that r contains, or "" if r is malformed.
func (r ReservationID) Key() ReservationKey {
	key, _, err := r.parse()
	if err != nil {
		return ""
	}
	return key
}

// Workers returns the tags that r contains, in ascending order. If r is malformed, it returns nil.
func (r ReservationID) Workers() []WorkerTag {
	_, tags, err := r.parse()
	if err != nil {
		return nil
	}
	return tags
}

// Validate returns CodeInvalid unless r has the form that [ReservationKey.At] returns.
func (r ReservationID) Validate() error {
	_, _, err := r.parse()
	return err
}

func (r ReservationID) parse() (ReservationKey, []WorkerTag, error) {
	bad := func() error {
		return Errorf(CodeInvalid, "reservation id %s: want a ULID, \"-\" and the tags of its workers, as in the response that created it", Quoted(string(r)))
	}
	text, rest, ok := strings.Cut(string(r), "-")
	key := ReservationKey(text)
	if !ok || len(rest) > 7*MaxReservedOrders || key.Validate() != nil {
		return "", nil, bad()
	}
	var tags []WorkerTag
	for part := range strings.SplitSeq(rest, ".") {
		n, err := strconv.ParseUint(part, 16, 24)
		if err != nil || n == 0 {
			return "", nil, bad()
		}
		tags = append(tags, WorkerTag(n))
	}
	if key.At(tags) != r { // fails if tags are duplicate or in the wrong order, or contain capital letters
		return "", nil, bad()
	}
	return key, tags, nil
}

// HoldOrder requests that a worker hold as much capacity as a machine with the order's config would
// take. The config does not need an image. If it has one, only workers that can run the image are
// asked, and the disk space for the root file system is held as well.
type HoldOrder struct {
	Reservation ReservationKey `json:"reservation"`
	Index       int            `json:"index"` // index of this order in the request
	TTL         Duration       `json:"ttl"`   // from MinHold to MaxHold; measured by the worker's clock
}

// Hold is a worker's record of the capacity that it holds for one order of a reservation. The
// capacity is held until it is released or until the hold expires, by the worker's clock.
type Hold struct {
	Order       OrderID        `json:"order"`
	Reservation ReservationKey `json:"reservation"`
	Index       int            `json:"index"`
	App         AppName        `json:"app"`              // app whose machines may take over the capacity
	AppID       string         `json:"app_id,omitempty"` // ID of the app; see [App.Owns]
	Worker      WorkerID       `json:"worker"`
	Tag         WorkerTag      `json:"tag"` // the worker's tag
	Region      Region         `json:"region"`
	Takes       Amounts        `json:"takes"`               // amounts that were held at first
	Remaining   Amounts        `json:"remaining,omitempty"` // amounts that no machine has taken over yet
	CreatedAt   time.Time      `json:"created_at"`
	ExpiresAt   time.Time      `json:"expires_at"` // the same for all holds of the reservation on this worker
}

// ValidateHold returns CodeInvalid unless ttl is between MinHold and MaxHold.
func ValidateHold(ttl time.Duration) error {
	if ttl < MinHold || ttl > MaxHold {
		return Errorf(CodeInvalid, "invalid ttl %s: use %s to %s", ttl, MinHold, MaxHold)
	}
	return nil
}

// NormalizeHeld normalizes the config of an order with a HoldOrder.
func (c *Config) NormalizeHeld() error {
	held := c.withProgram()
	err := held.Normalize()
	c.Guest, c.Size = held.Guest, held.Size
	return err
}

// withProgram returns a copy of c. If c has no program, the copy contains a placeholder, so that
// the rest can be validated like the config of a machine.
func (c *Config) withProgram() Config {
	out := *c
	if out.Image == "" {
		out.Image = ImageHost
	}
	if out.Image == ImageHost && len(out.Init.Command()) == 0 {
		out.Init.Exec = []string{"true"}
	}
	return out
}

// validateReservation returns CodeInvalid if the order requests a hold on capacity that cannot be
// reserved, or if it names a reservation that an order of its kind cannot use.
func (o *Order) validateReservation() error {
	if o.Reservation != "" {
		switch {
		case o.Kind() != KindMachine:
			return Errorf(CodeInvalid, "only an order for a machine can use a reservation")
		case o.SkipLaunch:
			return Errorf(CodeInvalid, "reservation and skip_launch cannot be combined: a machine uses reserved capacity when it starts")
		case o.Race > 1:
			return Errorf(CodeInvalid, "reservation and race cannot be combined: the losers would use up the reserved capacity")
		}
		return o.Reservation.Validate()
	}
	if o.Hold == nil {
		return nil
	}
	if len(o.Config.Mounts) > 0 {
		return Errorf(CodeInvalid, "volumes and machines with mounts cannot be reserved: create the volume, which reserves its disk space immediately")
	}
	if o.Hold.Index < 0 || o.Hold.Index >= MaxReservedOrders {
		return Errorf(CodeInvalid, "invalid index %d: use 0 to %d", o.Hold.Index, MaxReservedOrders-1)
	}
	if err := ValidateHold(time.Duration(o.Hold.TTL)); err != nil {
		return err
	}
	return o.Hold.Reservation.Validate()
}
