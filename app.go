package bourse

import (
	"cmp"
	"time"
)

// App is a name space for machines.
type App struct {
	Name      AppName    `json:"name"`
	ID        string     `json:"id"`             // ULID
	Life      int        `json:"life,omitempty"` // of the name: one more than that of the deleted app it replaces
	Org       string     `json:"org"`
	Network   string     `json:"network,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	DeletedAt *time.Time `json:"deleted_at,omitempty"` // set: a tombstone
}

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
