package bourse

import "time"

// App is a name space for machines.
type App struct {
	Name      AppName    `json:"name"`
	ID        string     `json:"id"` // ULID; tells a name's second life from its first
	Org       string     `json:"org"`
	Network   string     `json:"network,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	DeletedAt *time.Time `json:"deleted_at,omitempty"` // set: a tombstone
}

// Merge says what two copies of one app's record, kept by different workers,
// mean together. For one id, a deletion wins. For two ids, a living one beats
// a deleted one and the earlier of two living ones wins (ties: the smaller
// id), so that all who merge agree.
func (a App) Merge(b App) App {
	if a.ID == b.ID {
		if a.DeletedAt == nil || (b.DeletedAt != nil && b.DeletedAt.Before(*a.DeletedAt)) {
			if b.DeletedAt != nil {
				return b
			}
		}
		return a
	}
	if (a.DeletedAt == nil) != (b.DeletedAt == nil) {
		if a.DeletedAt == nil {
			return a
		}
		return b
	}
	switch c := a.CreatedAt.Compare(b.CreatedAt); {
	case c < 0, c == 0 && a.ID < b.ID:
		return a
	}
	return b
}
