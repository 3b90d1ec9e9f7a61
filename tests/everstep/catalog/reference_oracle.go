// Prints the complete reference of each line of standard input, or an empty line for invalid text.
package main

import (
	"bufio"
	_ "crypto/sha256" // a digest is valid only if its hash function is linked, as in containerd
	_ "crypto/sha512"
	"fmt"
	"os"

	"github.com/distribution/reference"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		named, err := reference.ParseDockerRef(lines.Text())
		if err != nil {
			fmt.Println()
			continue
		}
		fmt.Println(named.String())
	}
}
