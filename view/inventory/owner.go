package inventory

import (
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
)

// idClaim describes a row that claims an ID. It contains the site that wrote the row, and the tag
// that is part of the ID.
type idClaim struct {
	id   string
	site bourse.WorkerID
	tag  bourse.WorkerTag
}

// removeDuplicates retains only one element for each ID. It prefers the element from the worker whose
// tag is part of the ID. If there is none, it takes the one from the worker whose ID sorts first. Two
// workers claim the same ID only if one of them is faulty or malicious.
func removeDuplicates[T any](c *sqlite.Conn, list []T, of func(*T) idClaim) ([]T, error) {
	at := make(map[string]int, len(list))
	out := list[:0]
	for i := range list {
		l := of(&list[i])
		first, twice := at[l.id]
		if !twice {
			at[l.id] = len(out)
			out = append(out, list[i])
			continue
		}
		other := of(&out[first])
		have, err := ownsTag(c, other)
		if err != nil {
			return nil, err
		}
		claims, err := ownsTag(c, l)
		if err != nil {
			return nil, err
		}
		if claims && !have || claims == have && l.site < other.site {
			out[first] = list[i]
		}
	}
	return out, nil
}

const tagSQL = `SELECT tag FROM worker_rows WHERE site = ? AND key = site`

// ownsTag reports whether the tag in the claimed ID belongs to the site that claims the ID.
func ownsTag(c *sqlite.Conn, of idClaim) (bool, error) {
	var tag bourse.WorkerTag
	err := schema.Query(c, tagSQL, func(s *sqlite.Stmt) error {
		tag = bourse.WorkerTag(s.ColumnInt64(0))
		return nil
	}, of.site)
	return tag != 0 && tag == of.tag, err
}
