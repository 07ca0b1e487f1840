package org.torrentdist.engines

import java.net.InetAddress
import java.nio.file.{Files, Path}
import java.security.MessageDigest

import org.apache.spark.{SparkConf, SparkContext}

/** An application in Scala. Its tasks read a file of a bundle where it lies on their host. */
object ReadsInScala {
  private val Tasks = 9

  def main(arguments: Array[String]): Unit = {
    val Array(bundle, file) = arguments
    val spark = new SparkContext(new SparkConf())
    try {
      val found = spark.parallelize(0 until Tasks, Tasks).map(_ => read(bundle, file)).collect().toSet
      println("ANSWER [" + found.toSeq.sorted.mkString(", ") + "]")
    } finally spark.stop()
  }

  /** Returns, as JSON, this host and the digest of a file. */
  private def read(bundle: String, file: String): String = {
    val path = Path.of(System.getenv("TORRENTDIST_IDS_DIR"), bundle, file)
    val digest = MessageDigest.getInstance("SHA-256").digest(Files.readAllBytes(path))
    Thread.sleep(1000)
    val hex = digest.map(byte => "%02x".format(byte & 0xff)).mkString
    "[\"" + InetAddress.getLocalHost.getHostName + "\", \"" + hex + "\"]"
  }
}
