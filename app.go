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

// App is a name space for machines.
type App struct {
	Name      AppName    `json:"name"`
	ID        string     `json:"id"`             // ULID; its machines, volumes, orders and holds are known by it, the name is only a name
	Life      int        `json:"life,omitempty"` // of the name: one more than that of the deleted app it replaces
	Org       string     `json:"org"`
	Network   string     `json:"network,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	DeletedAt *time.Time `json:"deleted_at,omitempty"` // set: a tombstone
	// Proof is the record as a broker has signed it, for the view: with it a
	// worker's copy is believed.
	Proof []byte `json:"proof,omitempty"`
}

// AppRef says which app a record is of.
type AppRef struct {
	Name AppName
	ID   string
}

// Ref returns what the app's records say.
func (a *App) Ref() AppRef { return AppRef{a.Name, a.ID} }

// NewAppID makes the id of an app. It is random: no one can choose an app whose
// id is that of another, or has its marks on the ids of orders.
func NewAppID() string {
	var id ulid.ULID
	_ = id.SetTime(ulid.Now()) // fails past the year 10889 only
	_, _ = rand.Read(id[6:])   // crypto/rand never fails
	return id.String()
}

// Owns reports whether a record is the app's: one that says it is of an app of
// this name and id, and was made at a time. Records of the release before this
// field have no id. They are the app's that had the name then: the only one that ever had
// it, or else the one that is older than they are.
func (a *App) Owns(name AppName, id string, made time.Time) bool {
	switch {
	case name != a.Name:
		return false
	case id != "":
		return id == a.ID
	}
	return a.Life == 0 || !made.Before(a.CreatedAt)
}

// OwnedBy reports whether a machine is an app's.
func (m *Machine) OwnedBy(a *App) bool { return a.Owns(m.App, m.AppID, m.CreatedAt) }

// OwnedBy reports whether a volume is an app's.
func (v *Volume) OwnedBy(a *App) bool { return a.Owns(v.App, v.AppID, v.CreatedAt) }

// OwnedBy reports whether what is held is held for an app.
func (h *Hold) OwnedBy(a *App) bool { return a.Owns(h.App, h.AppID, h.CreatedAt) }

// OwnedBy reports whether a decision is about an order of an app.
func (d *Decision) OwnedBy(a *App) bool { return a.Owns(d.App, d.AppID, d.At) }

// Merge says what two copies of a name's record, kept by different workers,
// mean together. A later life of the name wins; within one, the app made
// first (ties: the smaller id); of one app, its first deletion. This is a
// total order and Merge its maximum, so all who merge agree, in whatever order
// they hear of the copies.
func (a App) Merge(b App) App {
	if cmp.Or(
		cmp.Compare(b.Life, a.Life),
		a.CreatedAt.Compare(b.CreatedAt),
		cmp.Compare(a.ID, b.ID),
		compareDeletions(a.DeletedAt, b.DeletedAt),
	) <= 0 {
		return a
	}
	return b
}

// compareDeletions puts the first deletion before later ones and before none.
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

// DefaultAppName names the app that exists without being made, so that a first
// machine needs no ceremony.
const DefaultAppName = AppName("default")

// DefaultOrg owns what names no organization.
const DefaultOrg = "personal"

// DefaultApp is the default app's record, given what was there before: nothing
// (a zero App), or a tombstone. Everybody makes the same one of it.
func DefaultApp(before App) App {
	app := App{Name: DefaultAppName, Org: DefaultOrg, CreatedAt: time.UnixMilli(0).UTC()}
	if before.DeletedAt != nil {
		app.CreatedAt, app.Life = *before.DeletedAt, before.Life+1
	}
	app.ID = IDOf("default app", before.ID)
	return app
}

// IDOf makes an id, in the shape of a ULID, of texts: the same texts give the
// same id.
func IDOf(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	var id ulid.ULID
	copy(id[:], sum[:])
	return id.String()
}

// AppKeys are the keys of one app's secrets, of AppKeySize bytes each: package
// seal makes them of a broker's keys, and opens values with them. A broker sends
// them to the workers that it has run the app's machines.
type AppKeys []byte

// AppKeySize is the length of one of AppKeys, and MaxAppKeys how many there are at
// most.
const (
	AppKeySize = 32
	MaxAppKeys = 64
)

// Validate reports CodeInvalid for what is not whole keys, and for too many.
func (k AppKeys) Validate() error {
	if len(k)%AppKeySize != 0 || len(k) > MaxAppKeys*AppKeySize {
		return Errorf(CodeInvalid, "%d bytes are not the keys of an app's secrets", len(k))
	}
	return nil
}

const hiddenKeys = "(keys)"

// Format implements fmt.Formatter: no message shows keys.
func (k AppKeys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hiddenKeys) }

// LogValue implements slog.LogValuer: no log shows keys.
func (k AppKeys) LogValue() slog.Value { return slog.StringValue(hiddenKeys) }

// MarshalJSON implements json.Marshaler: no JSON shows keys. What servers send one
// another and keep is CBOR.
func (k AppKeys) MarshalJSON() ([]byte, error) { return []byte(`"` + hiddenKeys + `"`), nil }

// PrivateAddress returns a machine's address in the private network of its app:
// fdaa, 32 bits of the network, 32 of the host, 32 of the machine, and 2. It
// says the same everywhere, so no one has to be asked.
func PrivateAddress(network string, id MachineID) netip.Addr {
	if id.Validate() != nil {
		return netip.Addr{}
	}
	chance, err := strconv.ParseUint(string(id[6:]), 16, 32)
	if err != nil {
		return netip.Addr{}
	}
	b := NetworkPrefix(network).Addr().As16()
	binary.BigEndian.PutUint32(b[6:], uint32(id.Tag()))
	binary.BigEndian.PutUint32(b[10:], uint32(chance))
	b[15] = 2
	return netip.AddrFrom16(b)
}

// NetworkPrefix returns the addresses of a private network, a /48.
func NetworkPrefix(network string) netip.Prefix {
	sum := sha256.Sum256([]byte(network))
	b := [16]byte{0: 0xfd, 1: 0xaa}
	copy(b[2:6], sum[:])
	return netip.PrefixFrom(netip.AddrFrom16(b), 48)
}

// PrivateNetwork names the network that an app's machines are in: one of its
// organisation's, so that no one joins another's by its name.
func (a *App) PrivateNetwork() string { return a.Org + "/" + a.Network }

// Placement states that a broker placed an order of an app on a worker. A
// worker cannot make one: the broker that claims the worker's quote signs it,
// the worker keeps the signed form with the machine or volume and shows it
// wherever it shows that record. A record without a valid placement belongs to
// no app.
type Placement struct {
	Order  OrderID  `cbor:"1,keyasint"`
	Kind   Kind     `cbor:"2,keyasint"` // KindMachine, KindTask (its machine) or KindVolume
	App    AppName  `cbor:"3,keyasint"`
	AppID  string   `cbor:"4,keyasint"`
	Worker WorkerID `cbor:"5,keyasint"`
}

// Placement returns the placement of the order on a worker.
func (o *Order) Placement(worker WorkerID) Placement {
	return Placement{Order: o.ID, Kind: o.Kind(), App: o.App.Name, AppID: o.App.ID, Worker: worker}
}

// Places reports whether p is about machine m.
func (p Placement) Places(m *Machine) bool {
	return p.Kind != KindVolume && p.of(m.Order, m.App, m.AppID, m.Worker)
}

// PlacesVolume reports whether p is about volume v.
func (p Placement) PlacesVolume(v *Volume) bool {
	return p.Kind == KindVolume && p.of(v.Order, v.App, v.AppID, v.Worker)
}

func (p Placement) of(order OrderID, app AppName, appID string, worker WorkerID) bool {
	return p == Placement{Order: order, Kind: p.Kind, App: app, AppID: appID, Worker: worker}
}
