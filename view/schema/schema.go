package schema

import (
	_ "embed" // embeds schema.sql
	"fmt"
	"hash/crc32"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

//go:embed schema.sql
var schemaSQL string

// version identifies the schema. It is stored in each file's user_version. It is derived from the text of schema.sql,
// so that any change to the schema causes existing files to be replaced.
var version = int(crc32.ChecksumIEEE([]byte(schemaSQL)) >> 1)

// Create creates the tables in a new file. It leaves a file with the same schema unchanged and returns [UnusableError]
// for a file with another schema.
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
		return &UnusableError{fmt.Errorf("the file has schema %08x, but this program requires %08x", found, version)}
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
