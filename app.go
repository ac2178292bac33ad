package bourse

import (
	"cmp"
	"crypto/rand"
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
