package view

// adopt puts what a newer release has sent where this one, which is that newer
// release now, keeps it: columns out of extra, rows out of unknown_rows. A
// value that does not fit after all goes.
func (b *batch) adopt() error {
	kept, err := b.tables.Kept(b.conn)
	if err != nil {
		return err
	}
	for _, old := range kept {
		b.account(old, -1)
		fitted, ok, err := b.tables.Adopt(b.conn, old)
		if err == nil && ok {
			err = b.replace(nil, fitted)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
