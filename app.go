package bourse

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// App is a namespace for machines.
type App struct {
	Name       AppName    `json:"name"`
	ID         string     `json:"id"`                   // a ULID; machines, volumes, orders and holds refer to the app by this ID
	Generation int        `json:"generation,omitempty"` // generation of the name; incremented when a deleted app's name is used again
	Org        string     `json:"org"`
	Network    string     `json:"network,omitempty"`
	CreatedAt  time.Time  `json:"created_at"`
	DeletedAt  *time.Time `json:"deleted_at,omitempty"` // if set, the record is a tombstone
	// Proof contains the record, signed by a broker. With it, other servers can trust a worker's
	// copy of the record.
	Proof []byte `json:"proof,omitempty"`
}

// AppRef identifies the app to which a record belongs.
type AppRef struct {
	Name AppName
	ID   string
}

// Ref returns a reference to the app.
func (a *App) Ref() AppRef { return AppRef{a.Name, a.ID} }

// NewAppID returns a new, random ID for an app. Because the ID is random, nobody can deliberately
// create an app with the ID of an existing app, or with an ID that results in the same order IDs
// (see [OrderID.In]).
func NewAppID() string {
	var id ulid.ULID
	_ = id.SetTime(ulid.Now()) // fails only after the year 10889
	_, _ = rand.Read(id[6:])   // crypto/rand never fails
	return id.String()
}

// Owns reports whether a record belongs to the app. name and id are the app name and app ID that
// the record contains, and created is the time when the record was created. If id is "", the record
// belongs to whichever app had the name at that time.
func (a *App) Owns(name AppName, id string, created time.Time) bool {
	switch {
	case name != a.Name:
		return false
	case id != "":
		return id == a.ID
	}
	return a.Generation == 0 || !created.Before(a.CreatedAt)
}

// OwnedBy reports whether the machine belongs to app a.
func (m *Machine) OwnedBy(a *App) bool { return a.Owns(m.App, m.AppID, m.CreatedAt) }

// OwnedBy reports whether the volume belongs to app a.
func (v *Volume) OwnedBy(a *App) bool { return a.Owns(v.App, v.AppID, v.CreatedAt) }

// OwnedBy reports whether the hold belongs to app a.
func (h *Hold) OwnedBy(a *App) bool { return a.Owns(h.App, h.AppID, h.CreatedAt) }

// OwnedBy reports whether the decision is about one of app a's orders.
func (d *Decision) OwnedBy(a *App) bool { return a.Owns(d.App, d.AppID, d.At) }

// Merge merges two copies of an app's record by returning one of them. It prefers the copy with the
// later generation of the name, then the app that was created first, then the smaller ID, then the
// earlier deletion. This is a total order, so the result does not depend on the sequence in which
// copies are merged.
func (a App) Merge(b App) App {
	if cmp.Or(
		cmp.Compare(b.Generation, a.Generation),
		a.CreatedAt.Compare(b.CreatedAt),
		cmp.Compare(a.ID, b.ID),
		compareDeletions(a.DeletedAt, b.DeletedAt),
	) <= 0 {
		return a
	}
	return b
}

// compareDeletions compares two deletion times. nil sorts after every time.
func compareDeletions(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return a.Compare(*b)
}

// DefaultAppName is the name of the default app, which exists without being created.
const DefaultAppName = AppName("default")

// DefaultOrg is the organization of apps that are created without one.
const DefaultOrg = "personal"

// DefaultApp returns the record of the default app. before is the tombstone of the previous app
// with that name, or a zero App if there was none. The result is the same on every server.
func DefaultApp(before App) App {
	app := App{Name: DefaultAppName, Org: DefaultOrg, CreatedAt: time.UnixMilli(0).UTC()}
	if before.DeletedAt != nil {
		app.CreatedAt, app.Generation = *before.DeletedAt, before.Generation+1
	}
	app.ID = IDOf("default app", before.ID)
	return app
}

// IDOf hashes the texts and returns the hash in the form of a ULID.
func IDOf(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	var id ulid.ULID
	copy(id[:], sum[:])
	return id.String()
}

// AppKeys contains the keys for the secrets of one app. Each key has AppKeySize bytes. Package seal
// derives them from a broker's keys, and decrypts values with them. A broker sends them to the
// workers that run the app's machines.
type AppKeys []byte

// AppKeySize is the length of a key in bytes. MaxAppKeys is the maximum number of keys.
const (
	AppKeySize = 32
	MaxAppKeys = 64
)

// Validate returns CodeInvalid if the length of k is not a multiple of AppKeySize, or if there are
// more than MaxAppKeys keys.
func (k AppKeys) Validate() error {
	if len(k)%AppKeySize != 0 || len(k) > MaxAppKeys*AppKeySize {
		return Errorf(CodeInvalid, "%d bytes are not the keys of an app's secrets", len(k))
	}
	return nil
}

const hiddenKeys = "(keys)"

// Format implements fmt.Formatter. It prints a placeholder instead of the keys.
func (k AppKeys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hiddenKeys) }

// LogValue implements slog.LogValuer. It returns a placeholder instead of the keys.
func (k AppKeys) LogValue() slog.Value { return slog.StringValue(hiddenKeys) }

// MarshalJSON implements json.Marshaler. It encodes a placeholder instead of the keys. Servers send
// and store the keys as CBOR.
func (k AppKeys) MarshalJSON() ([]byte, error) { return []byte(`"` + hiddenKeys + `"`), nil }

// PrivateAddress returns the address of a machine in its app's private network. The address
// consists of the prefix fdaa, 32 bits each for the network, the host and the machine, and the
// number 2. It depends only on the arguments, so no server has to assign it.
func PrivateAddress(network string, id MachineID) netip.Addr {
	if id.Validate() != nil {
		return netip.Addr{}
	}
	random, err := strconv.ParseUint(string(id[6:]), 16, 32)
	if err != nil {
		return netip.Addr{}
	}
	b := NetworkPrefix(network).Addr().As16()
	binary.BigEndian.PutUint32(b[6:], uint32(id.Tag()))
	binary.BigEndian.PutUint32(b[10:], uint32(random))
	b[15] = 2
	return netip.AddrFrom16(b)
}

// NetworkPrefix returns the prefix of a private network, which is a /48.
func NetworkPrefix(network string) netip.Prefix {
	sum := sha256.Sum256([]byte(network))
	b := [16]byte{0: 0xfd, 1: 0xaa}
	copy(b[2:6], sum[:])
	return netip.PrefixFrom(netip.AddrFrom16(b), 48)
}

// LaptopAddress returns the address of a laptop in a private network, given the laptop's WireGuard
// key. The address consists of the network's prefix, 64 bits of a hash, and the number 4. It
// depends only on the arguments. The hash covers the key and the network's name. It includes the
// name because another organization could choose a network name that results in the same prefix.
func LaptopAddress(network string, key [32]byte) netip.Addr {
	sum := sha256.Sum256(append([]byte("laptop\x00"+network+"\x00"), key[:]...))
	b := NetworkPrefix(network).Addr().As16()
	copy(b[6:14], sum[:])
	b[15] = laptopEnd
	return netip.AddrFrom16(b)
}

// laptopEnd is the last byte of every laptop's address. Machines' addresses end in 2.
const laptopEnd = 4

// IsLaptopAddress reports whether an address belongs to a laptop in some private network.
func IsLaptopAddress(a netip.Addr) bool {
	b := a.As16()
	return a.Is6() && b[0] == 0xfd && b[1] == 0xaa && b[14] == 0 && b[15] == laptopEnd
}

// PrivateNetwork returns the name of the app's private network. The name begins with the
// organization, so that an app cannot join another organization's network by using the same network
// name.
func (a *App) PrivateNetwork() string { return a.Org + "/" + a.Network }

// Placement certifies that a broker has placed an app's order on a worker. The broker that claims
// the order signs it, so a worker cannot forge it. The worker stores the signed form with the
// machine or volume, and includes it in every copy of that record. A record without a valid
// placement does not belong to any app.
type Placement struct {
	Order  OrderID  `cbor:"1,keyasint"`
	Kind   Kind     `cbor:"2,keyasint"` // KindMachine, KindVolume, or KindTask for the machine of a task
	App    AppName  `cbor:"3,keyasint"`
	AppID  string   `cbor:"4,keyasint"`
	Worker WorkerID `cbor:"5,keyasint"`
}

// Placement returns the placement of the order on the given worker.
func (o *Order) Placement(worker WorkerID) Placement {
	return Placement{Order: o.ID, Kind: o.Kind(), App: o.App.Name, AppID: o.App.ID, Worker: worker}
}

// Places reports whether p is the placement of machine m.
func (p Placement) Places(m *Machine) bool {
	return p.Kind != KindVolume && p.of(m.Order, m.App, m.AppID, m.Worker)
}

// PlacesVolume reports whether p is the placement of volume v.
func (p Placement) PlacesVolume(v *Volume) bool {
	return p.Kind == KindVolume && p.of(v.Order, v.App, v.AppID, v.Worker)
}

func (p Placement) of(order OrderID, app AppName, appID string, worker WorkerID) bool {
	return p == Placement{Order: order, Kind: p.Kind, App: app, AppID: appID, Worker: worker}
}
