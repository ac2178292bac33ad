// Package duplex carries a command's input and output in one HTTP request whose body and reply are
// sent at the same time. It defines the frames for both directions, and implements the client.
//
// The request's body begins with [Start]. It continues with input and changes to the terminal's
// size, and with [StdinEnd] at the end of the input. The reply contains output, and a [Ping] from
// time to time, so that both ends notice a lost connection. It ends with one [Exit] or one
// [Failed]. A reply that contains neither was truncated.
//
// Flow control relies on the connection. If one end does not read, the other end blocks.
package duplex
