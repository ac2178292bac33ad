package schema

import (
	_ "embed" // for the schema
	"fmt"
	"hash/crc32"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

//go:embed schema.sql
var schemaSQL string

// version identifies the schema in a file's user_version. It follows from the text, so
// that no change can leave files behind that lack a table or column.
var version = int(crc32.ChecksumIEEE([]byte(schemaSQL)) >> 1)

// Create gives a new file its tables. It leaves a file of the same schema as it
// is, and returns [Unusable] for a file of another one.
func Create(c *sqlite.Conn) error {
	found := 0
	err := Query(c, "PRAGMA user_version", func(s *sqlite.Stmt) error {
		found = s.ColumnInt(0)
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("read the schema's version: %w", err)
	case found == version:
		return nil
	case found != 0:
		return &Unusable{fmt.Errorf("it has schema %08x, this release uses %08x", found, version)}
	}
	err = InTransaction(c, func() error {
		if err := sqlitex.ExecuteScript(c, schemaSQL, nil); err != nil {
			return err
		}
		return Run(c, fmt.Sprintf("PRAGMA user_version = %d", version))
	})
	if err != nil {
		return fmt.Errorf("create the tables: %w", err)
	}
	return nil
}
