// Package words has no code: its test keeps one word for one concept in the exported names of this
// module, those of the table in ARCHITECTURE.md.
package words
