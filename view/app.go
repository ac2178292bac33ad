package view

import "github.com/bourse-dev/bourse"

// AppRow says what is known of an app, its deletion too: an app's row is never
// [Gone], so that bourse.App.Merge goes on deciding.
func AppRow(a bourse.App) Row {
	columns := map[string]Value{
		"id": cleanText(a.ID), "life": int64(a.Life), "org": cleanText(a.Org), "network": cleanText(a.Network),
		"created_at": nanos(a.CreatedAt), "deleted_at": nil,
	}
	if a.DeletedAt != nil {
		columns["deleted_at"] = nanos(*a.DeletedAt)
	}
	return Row{Table: TableApps, Key: string(a.Name), Columns: columns}
}

// appColumns are those that readApp takes, of app_rows.
const appColumns = `key, id, life, org, network, created_at, deleted_at`

func readApp(r *cells) bourse.App {
	a := bourse.App{
		Name: bourse.AppName(r.ColumnText(0)), ID: r.ColumnText(1), Life: r.ColumnInt(2), Org: r.ColumnText(3), Network: r.ColumnText(4),
		CreatedAt: r.time(5),
	}
	if !r.ColumnIsNull(6) {
		at := r.time(6)
		a.DeletedAt = &at
	}
	return a
}
