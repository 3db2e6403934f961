// Package human is how values are written for people, and read from what people write. All its
// functions are pure.
//
//   - printable.go escapes untrusted text, such as the names of files and jobs, for terminals and
//     logs: escaped text cannot forge a line of its own or change what a terminal shows. Use Name
//     for a name within a message. Use Text for a whole message, as the last step before it is
//     printed: line breaks in it are the message's own, and stay.
//   - size.go parses and formats byte counts: "10GB", "64MiB", "23.1 GiB".
//   - suggest.go finds the known name that was probably meant by an unknown one, for messages about
//     keys, variables and arguments.
//   - words.go formats the numbers of simulations and analyses: seconds, bytes, shares and counts,
//     with few digits.
package human
