package inventory

import (
	"strconv"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// The keys of secrets begin with the app's ID, so that a later app with the same name does not get
// an earlier app's secrets. Each app has one row per secret. For each broker that has changed the
// app's secrets, it also has one row without a secret's name, which is called a mark.

// SecretRows returns the rows for one change to an app's secrets. The last row is the broker's
// mark, so a member that has received the mark has also received the other rows.
func SecretRows(c *seal.Change) []wire.Row {
	rows := make([]wire.Row, 0, len(c.Put)+len(c.Gone)+1)
	for i := range c.Put {
		s := &c.Put[i]
		rows = append(rows, wire.Row{Table: wire.TableSecrets, Key: c.App.ID + "/" + s.Name, Columns: map[string]wire.Value{
			"app": string(c.App.Name), "name": s.Name, "digest": s.Digest, "sealed": s.Sealed, "version": int64(s.Version),
			"created_at": nanos(s.CreatedAt), "updated_at": nanos(s.UpdatedAt),
		}})
	}
	for _, name := range c.Gone {
		rows = append(rows, wire.DeletedRow(wire.TableSecrets, c.App.ID+"/"+name))
	}
	writer := strconv.FormatUint(uint64(seal.WriterIn(c.Mark.Version)), 10)
	return append(rows, wire.Row{Table: wire.TableSecrets, Key: c.App.ID + "//" + writer, Columns: map[string]wire.Value{
		"app": string(c.App.Name), "version": int64(c.Mark.Version), "sealed": c.Mark.MarshalSeen(),
	}})
}

// ClearedSecrets returns the rows that delete all secrets of a deleted app.
func ClearedSecrets(app string, secrets []seal.Secret, marks seal.Marks) []wire.Row {
	rows := make([]wire.Row, 0, len(secrets)+len(marks))
	for i := range secrets {
		rows = append(rows, wire.DeletedRow(wire.TableSecrets, app+"/"+secrets[i].Name))
	}
	for w := range marks {
		rows = append(rows, wire.DeletedRow(wire.TableSecrets, app+"//"+strconv.FormatUint(uint64(w), 10)))
	}
	return rows
}

const (
	// "0" is the character after "/".
	secretsSQL     = `SELECT name, digest, sealed, version, created_at, updated_at FROM secret_rows WHERE key > ? AND key < ? AND name <> '' ORDER BY name`
	secretMarksSQL = `SELECT version, sealed FROM secret_rows WHERE key > ? AND key < ? AND name = ''`
)

// Secrets returns a query for the secrets of the app with this ID, sorted by name.
func Secrets(app string) func(*sqlite.Conn) ([]seal.Secret, error) {
	return func(c *sqlite.Conn) ([]seal.Secret, error) {
		var list []seal.Secret
		err := schema.Query(c, secretsSQL, func(s *sqlite.Stmt) error {
			r := &cells{Stmt: s}
			list = append(list, seal.Secret{
				Name: r.ColumnText(0), Digest: r.ColumnText(1), Sealed: blob(s, 2), Version: uint64(r.ColumnInt64(3)), CreatedAt: r.time(4), UpdatedAt: r.time(5),
			})
			return nil
		}, app+"/", app+"0")
		return list, err
	}
}

// SecretMarks returns a query for the marks of an app's secrets. A broker's mark contains the
// version of its latest change.
func SecretMarks(app string) func(*sqlite.Conn) (seal.Marks, error) {
	return func(c *sqlite.Conn) (seal.Marks, error) {
		marks := seal.Marks{}
		err := schema.Query(c, secretMarksSQL, func(s *sqlite.Stmt) error {
			if m, ok := seal.ReadMark(uint64(s.ColumnInt64(0)), blob(s, 1)); ok {
				marks.Add(m)
			}
			return nil
		}, app+"//", app+"/0")
		return marks, err
	}
}

func blob(s *sqlite.Stmt, col int) []byte {
	b := make([]byte, s.ColumnLen(col))
	return b[:s.ColumnBytes(col, b)]
}
