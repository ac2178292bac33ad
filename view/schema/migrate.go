package schema

import (
	"fmt"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Definition is the history of a file's schema.
type Definition struct {
	First int      // the number of the oldest schema that is still opened
	Steps []string // the first one makes that schema, the n-th after it takes a file of schema first+n-1 to first+n
}

// Migrate brings the file to the newest schema and returns how many of the
// steps it had behind it, 0 for a new file. Each step is whole or not at all.
func Migrate(c *sqlite.Conn, s Definition) (behind int, err error) {
	version := 0
	err = Query(c, "PRAGMA user_version", func(s *sqlite.Stmt) error {
		version = s.ColumnInt(0)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read the schema's version: %w", err)
	}
	if version != 0 {
		behind = version - s.First + 1
	}
	if version != 0 && behind < 1 || behind > len(s.Steps) {
		return 0, &Unusable{fmt.Errorf("it has schema %d, this release knows %d to %d", version, s.First, s.First+len(s.Steps)-1)}
	}
	for n, step := range s.Steps[behind:] {
		number := s.First + behind + n
		err := InTransaction(c, func() error {
			if err := sqlitex.ExecuteScript(c, step, nil); err != nil {
				return err
			}
			return Run(c, fmt.Sprintf("PRAGMA user_version = %d", number))
		})
		if err != nil {
			return behind, fmt.Errorf("migrate to schema %d: %w", number, err)
		}
	}
	return behind, nil
}
