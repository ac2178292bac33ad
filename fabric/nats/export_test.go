package nats

// Cut ends the link as the death of its process would: nobody is told.
func (l *Link) Cut() {
	l.nats.Close()
	l.Close()
}
