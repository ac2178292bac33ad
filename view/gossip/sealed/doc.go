// Package sealed carries the messages of a membership: it encrypts them, and
// looks at each one that arrives before memberlist does.
//
// Memberlist trusts every member that has the key. It unpacks what is compressed to 40 MiB
// a message, allocates 4 GiB because five bytes declare a text of that
// length, and panics when a message is empty. So it has no keys here and sees
// nothing but messages that passed [Transport]: of a bounded size, of a type that
// members send, not compressed, and with every declared length inside the
// message. What it then decodes takes a small multiple of what has come.
//
// On the wire a message is what memberlist makes with a key: a member of an
// earlier release understands it, and the other way round.
//
//	packet: 244, length of the label, label, sealed
//	stream: 244, length of the label, label, 10, length (4), sealed; the answer begins at the 10
//	sealed: 1, nonce (12), AES-GCM of the message; it authenticates what is before it, too
package sealed
