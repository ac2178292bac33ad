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

// ReservationKey identifies a reservation at its workers. It is a ULID and serves as the
// idempotency key.
type ReservationKey string

// ReservationID consists of a reservation's key and the tags of its workers,
// "01ARZ3NDEKTSV4RRFFQ69G5FAV-0a1b2c.d4e5f6". Like a machine's id it is an address, so
// any broker finds the workers without having stored anything.
type ReservationID string

// Bounds and defaults of a reservation.
const (
	DefaultHold       = time.Minute
	MinHold           = time.Second
	MaxHold           = time.Hour
	MaxReservedOrders = 64
)

// NewReservationKey returns a new key that contains the current time.
func NewReservationKey() ReservationKey { return ReservationKey(ulid.Make().String()) }

// Validate returns CodeInvalid unless k is a ULID in capital letters, so that each
// reservation has one spelling.
func (k ReservationKey) Validate() error {
	if id, err := ulid.ParseStrict(string(k)); err != nil || id.String() != string(k) {
		return Errorf(CodeInvalid, "reservation key %s: want a ULID (26 characters)", Quoted(string(k)))
	}
	return nil
}

// Order returns the id of the reservation's n-th order. It is a pure function, so a
// repeated request finds the existing holds.
func (k ReservationKey) Order(n int) OrderID { return k.derive("order", uint32(n)) }

// All returns the order id with which the whole reservation is canceled at a worker. A
// client cannot choose this id for an order, so a reservation whose key equals somebody's
// order id cannot cancel that order.
func (k ReservationKey) All() OrderID { return k.derive("all", 0) }

func (k ReservationKey) derive(what string, n uint32) OrderID {
	id, err := ulid.ParseStrict(string(k))
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint32([]byte(string(k)+" "+what+" "), n))
	_ = id.SetEntropy(sum[:10]) // fails on a wrong length only
	return OrderID(id.String())
}

// At returns the id of the reservation whose holds are on these workers.
func (k ReservationKey) At(tags []WorkerTag) ReservationID {
	tags = slices.Compact(slices.Sorted(slices.Values(tags)))
	parts := make([]string, len(tags))
	for i, t := range tags {
		parts[i] = t.String()
	}
	return ReservationID(string(k) + "-" + strings.Join(parts, "."))
}

// Key returns the key in r, or "" if r is malformed.
func (r ReservationID) Key() ReservationKey {
	key, _, err := r.parse()
	if err != nil {
		return ""
	}
	return key
}

// Workers returns the tags in r in ascending order, or nil if r is malformed.
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
		return Errorf(CodeInvalid, "reservation id %s: want a ULID, \"-\" and the tags of its workers, as the reservation was answered with", Quoted(string(r)))
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
	if key.At(tags) != r { // duplicate tags, wrong order, or capital letters
		return "", nil, bad()
	}
	return key, tags, nil
}

// HoldOrder is an order for capacity to be held: as much as a machine with the order's
// config would take. The config needs no image. With one, only workers that run it are
// asked, and the disk space of its root file system is held too.
type HoldOrder struct {
	Reservation ReservationKey `json:"reservation"`
	Index       int            `json:"index"` // of this order in the request
	TTL         Duration       `json:"ttl"`   // MinHold to MaxHold, by the worker's clock
}

// Hold is a worker's record of the capacity that it holds for one order of a reservation,
// until it is released or expires by the worker's clock.
type Hold struct {
	Order       OrderID        `json:"order"`
	Reservation ReservationKey `json:"reservation"`
	Index       int            `json:"index"`
	App         AppName        `json:"app"`              // whose machines may take it
	AppID       string         `json:"app_id,omitempty"` // its id; see [App.Owns]
	Worker      WorkerID       `json:"worker"`
	Tag         WorkerTag      `json:"tag"` // the worker's
	Region      Region         `json:"region"`
	Takes       Amounts        `json:"takes"`          // held at first
	Left        Amounts        `json:"left,omitempty"` // remaining part of Takes that no machine has taken over
	CreatedAt   time.Time      `json:"created_at"`
	ExpiresAt   time.Time      `json:"expires_at"` // the same for all holds of a reservation on one worker
}

// ValidateHold returns CodeInvalid unless ttl is from MinHold to MaxHold.
func ValidateHold(ttl time.Duration) error {
	if ttl < MinHold || ttl > MaxHold {
		return Errorf(CodeInvalid, "invalid ttl %s: use %s to %s", ttl, MinHold, MaxHold)
	}
	return nil
}

// NormalizeHeld normalizes the config of a HoldOrder.
func (c *Config) NormalizeHeld() error {
	held := c.programmed()
	err := held.Normalize()
	c.Guest, c.Size = held.Guest, held.Size
	return err
}

// programmed returns c with a placeholder program if it has none, so that the rest can be
// validated like any machine's config.
func (c *Config) programmed() Config {
	out := *c
	if out.Image == "" {
		out.Image = ImageHost
	}
	if out.Image == ImageHost && len(out.Init.Command()) == 0 {
		out.Init.Exec = []string{"true"}
	}
	return out
}

// validateReservation returns CodeInvalid for an order whose capacity cannot be reserved,
// or cannot come from a reservation.
func (o *Order) validateReservation() error {
	if o.Reservation != "" {
		switch {
		case o.Kind() != KindMachine:
			return Errorf(CodeInvalid, "only an order for a machine can take from a reservation")
		case o.SkipLaunch:
			return Errorf(CodeInvalid, "reservation and skip_launch exclude each other: a machine takes what is held when it starts")
		case o.Race > 1:
			return Errorf(CodeInvalid, "reservation and race exclude each other: those that lose would use up what is held")
		}
		return o.Reservation.Validate()
	}
	if o.Hold == nil {
		return nil
	}
	if len(o.Config.Mounts) > 0 {
		return Errorf(CodeInvalid, "volumes cannot be reserved, nor room beside one: create the volume, which takes its room at once")
	}
	if o.Hold.Index < 0 || o.Hold.Index >= MaxReservedOrders {
		return Errorf(CodeInvalid, "invalid index %d: use 0 to %d", o.Hold.Index, MaxReservedOrders-1)
	}
	if err := ValidateHold(time.Duration(o.Hold.TTL)); err != nil {
		return err
	}
	return o.Hold.Reservation.Validate()
}
